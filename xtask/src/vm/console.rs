//! The messages of a guest's init.sh on its console.

use anyhow::{Result, bail, ensure};

use super::steps::Step;

/// The number of lines that are shown of a failed step.
const SHOWN: usize = 80;

/// Follows a guest line by line, and prints its progress.
#[derive(Default)]
pub(crate) struct Reader {
    machine: String,
    /// The name of each step, and the prefix of the output line that summarizes it.
    steps: Vec<(String, &'static str)>,
    ended: usize,
    failed: Vec<String>,
    output: Vec<String>,
    began: f64,
    panicked: bool,
    hotplugs: Option<u64>,
}

impl Reader {
    pub(crate) fn new(machine: String, steps: &[Step]) -> Reader {
        Reader {
            machine,
            steps: steps.iter().map(|step| (step.name.clone(), step.summary)).collect(),
            ..Reader::default()
        }
    }

    pub(crate) fn line(&mut self, line: &str) {
        // The kernel may have written to the same line.
        match line.split_once("@@ ") {
            Some((_, message)) => self.message(&message.split_whitespace().collect::<Vec<_>>()),
            None => {
                self.panicked |= line.contains("Kernel panic");
                self.output.push(line.to_owned());
            }
        }
    }

    fn message(&mut self, words: &[&str]) {
        match *words {
            ["begin", name, at] => {
                eprintln!("{}: {name}", self.machine);
                self.began = at.parse().unwrap_or_default();
                self.output.clear();
            }
            ["end", name, status, at, hotplugs] => {
                let seconds = at.parse::<f64>().unwrap_or_default() - self.began;
                eprintln!(
                    "{}: {name} ended with {status} after {seconds:.0} s, {hotplugs} hotplugs{}",
                    self.machine,
                    self.summary(name)
                );
                self.ended += 1;
                if status != "0" {
                    self.failed.push(name.to_owned());
                    let first = self.output.len().saturating_sub(SHOWN);
                    self.output[first..].iter().for_each(|line| eprintln!("    {line}"));
                }
            }
            ["over", hotplugs] => self.hotplugs = hotplugs.parse().ok(),
            _ => {}
        }
    }

    /// Returns the last line that summarizes a step.
    fn summary(&self, name: &str) -> String {
        let prefix = self.steps.iter().find(|step| step.0 == name).map_or("", |step| step.1);
        let line = self.output.iter().rfind(|line| line.starts_with(prefix));
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        line.map(|line| format!("; {}", words(line))).unwrap_or_default()
    }

    /// Returns an error unless all steps succeeded. Call it after the guest has ended.
    pub(crate) fn verdict(&self) -> Result<()> {
        if self.panicked {
            bail!("the kernel panicked");
        }
        ensure!(self.failed.is_empty(), "failed: {}", self.failed.join(", "));
        let missing = self.steps.get(self.ended).map(|step| &step.0[..]);
        let Some(hotplugs) = self.hotplugs.filter(|_| missing.is_none()) else {
            bail!("the machine ended before {}", missing.unwrap_or("its first process"));
        };
        ensure!(hotplugs > 0, "no CPU ever went offline");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(lines: &[&str]) -> Result<()> {
        let step = Step { name: "tests".into(), command: "true".into(), summary: "test result:" };
        let mut reader = Reader::new("a machine".into(), &[step]);
        lines.iter().for_each(|line| reader.line(line));
        reader.verdict()
    }

    #[test]
    fn guest_succeeds_only_with_all_messages() {
        let good =
            ["noise", "@@ begin tests 1.5", "test result: ok", "@@ end tests 0 9.1 7", "@@ over 8"];
        assert!(follow(&good).is_ok());
        for gone in 2..good.len() {
            assert!(follow(&good[..gone]).is_err(), "without {}", good[gone]);
        }
        assert!(follow(&["@@ begin tests 1", "@@ end tests 1 2 3", "@@ over 8"]).is_err());
        assert!(follow(&["@@ begin tests 1", "[ 7.1] @@ end tests 0 2 3", "@@ over 0"]).is_err());
        let panicked = [&good[..], &["[    9.7] Kernel panic - not syncing"]].concat();
        assert!(follow(&panicked).is_err());
    }
}
