//! Debian packages that are unpacked and never installed.
//!
//! apt uses lists, caches and architectures in a directory of its own, so this machine's stay
//! unchanged.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use crate::arch::Arch;

/// The release of the packages, whatever release this machine runs.
const RELEASE: &str = "bookworm";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(crate) struct Apt<'a> {
    sh: &'a Shell,
    directory: PathBuf,
    options: Vec<String>,
}

impl<'a> Apt<'a> {
    pub(crate) fn new(sh: &'a Shell, directory: PathBuf) -> Apt<'a> {
        let at = |name: &str| directory.join(name).display().to_string();
        let options = [
            format!("Dir::Etc::SourceList={}", at("sources.list")),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State={}", at("state")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "APT::Architectures=amd64,arm64".to_owned(),
            // apt's own user may not write to the directory.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect();
        Apt { sh, directory, options }
    }

    /// Returns the unpacked kernel package of a metapackage, and downloads it once.
    ///
    /// It is the newest one with updates, or that of the backports.
    pub(crate) fn kernel(&self, newest: &str, arch: Arch, backports: bool) -> Result<PathBuf> {
        let stable = name_with_arch(newest, arch);
        let suite = if backports { "Backports" } else { "Stable" };
        let directory = self.unpacked(&format!("{newest}-{suite}"));
        if self.sh.path_exists(&directory) {
            return Ok(directory);
        }
        self.update()?;
        let (sh, options) = (self.sh, &self.options);
        // Backports need a request.
        let release = if backports { format!("{RELEASE}-backports") } else { String::new() };
        let preferred = format!("APT::Default-Release={release}");
        let depends = cmd!(sh, "apt-cache {options...} -o {preferred} depends {stable}");
        let depends = depends.quiet().read()?;
        let name = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| name.starts_with("linux-image-"))
            // A name of another architecture has that as a suffix.
            .and_then(|name| name.split(':').next())
            .with_context(|| format!("{newest} depends on no kernel in {RELEASE}: {depends}"))?;
        self.unpack(&name_with_arch(name, arch), &directory)
    }

    /// Returns an unpacked package, of the given version if any; downloads it once.
    pub(crate) fn package(&self, name: &str, arch: Arch, version: Option<&str>) -> Result<PathBuf> {
        let version = version.map(|version| format!("={version}")).unwrap_or_default();
        let wanted = format!("{}{version}", name_with_arch(name, arch));
        let directory = self.unpacked(&wanted.replace([':', '='], "-"));
        if self.sh.path_exists(&directory) {
            return Ok(directory);
        }
        self.update()?;
        self.unpack(&wanted, &directory)
    }

    fn unpacked(&self, name: &str) -> PathBuf {
        self.directory.join("unpacked").join(name)
    }

    fn unpack(&self, wanted: &str, to: &Path) -> Result<PathBuf> {
        eprintln!("downloading {wanted}");
        let (sh, options) = (self.sh, &self.options);
        let temporary = sh.create_temp_dir()?;
        {
            let _directory = sh.push_dir(temporary.path());
            cmd!(sh, "apt-get -qq {options...} download {wanted}").quiet().run()?;
        }
        let files = sh.read_dir(temporary.path())?;
        let file = files.first().with_context(|| format!("apt-get has not downloaded {wanted}"))?;
        // It gets its name when it is complete.
        let partial = to.with_extension("partial");
        sh.remove_path(&partial)?;
        sh.create_dir(&partial)?;
        cmd!(sh, "dpkg-deb -x {file} {partial}").quiet().run()?;
        std::fs::rename(&partial, to)?;
        Ok(to.to_owned())
    }

    /// Updates the lists of packages, once in each run that downloads a package.
    fn update(&self) -> Result<()> {
        let (sh, options) = (self.sh, &self.options);
        static ONCE: std::sync::OnceLock<()> = std::sync::OnceLock::new();
        if ONCE.get().is_some() {
            return Ok(());
        }
        for name in ["state/lists/partial", "cache/archives/partial", "unpacked"] {
            sh.create_dir(self.directory.join(name))?;
        }
        sh.write_file(self.directory.join("status"), "")?;
        sh.write_file(self.directory.join("sources.list"), self.sources()?)?;
        eprintln!("reading Debian's lists of packages");
        cmd!(sh, "apt-get -qq {options...} update").quiet().run()?;
        let _ = ONCE.set(());
        Ok(())
    }

    /// Returns this machine's sources of the release, and its backports.
    fn sources(&self) -> Result<String> {
        let sh = self.sh;
        let format = "$(LABEL) $(RELEASE) $(REPO_URI)";
        let packages = "Created-By: Packages";
        let known = cmd!(sh, "apt-get indextargets --format {format} {packages}").quiet().read()?;
        let mut sources = String::new();
        for line in known.lines() {
            let mut words = line.rsplitn(3, ' ');
            let (uri, release) = (words.next(), words.next());
            let (Some(uri), Some(release)) = (uri, release) else { continue };
            if !words.next().is_some_and(|label| label.starts_with("Debian")) {
                continue;
            }
            let mut add = |suite: &str| {
                let source = format!("deb [signed-by={KEYS}] {uri} {suite} main\n");
                if !sources.contains(&source) {
                    sources += &source;
                }
            };
            if release == RELEASE {
                add(&format!("{RELEASE}-backports"));
            }
            if release.starts_with(RELEASE) {
                add(release);
            }
        }
        ensure!(
            sources.contains("-backports"),
            "apt has no source of Debian {RELEASE}; add one, or run `apt-get update`"
        );
        Ok(sources)
    }
}

/// Returns a package's name for an architecture, by Debian's name of that.
fn name_with_arch(name: &str, arch: Arch) -> String {
    match arch {
        Arch::X86_64 => format!("{name}:amd64"),
        Arch::Aarch64 => format!("{name}:arm64"),
    }
}
