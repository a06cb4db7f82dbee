//! The root file system of a guest: busybox, the programs, and the list of steps.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use super::apt::Apt;
use super::machine::Machine;
use super::steps::Step;

pub(crate) fn build(
    sh: &Shell,
    apt: &Apt,
    machine: &Machine,
    programs: &[PathBuf],
    steps: &[Step],
    directory: &Path,
) -> Result<PathBuf> {
    let root = directory.join("root");
    sh.remove_path(&root)?;
    for name in ["bin", "dev", "proc", "sys", "tmp"] {
        sh.create_dir(root.join(name))?;
    }
    let busybox = apt.package("busybox-static", machine.arch, None)?;
    sh.copy_file(busybox.join("bin/busybox"), root.join("bin/busybox"))?;
    for program in programs {
        let name = program
            .file_name()
            .and_then(|name| name.to_str())
            .context("a program without a name")?;
        // Cargo adds a hash of 16 digits to the names of tests.
        let name = name.rsplit_once('-').filter(|split| split.1.len() == 16).map_or(name, |s| s.0);
        sh.copy_file(program, root.join("bin").join(name))?;
    }
    let line = |step: &Step| format!("{}\t{}\n", step.name, step.command);
    let lines: Vec<_> = steps.iter().map(line).collect();
    sh.write_file(root.join("steps"), lines.concat())?;
    let init = root.join("init");
    sh.write_file(&init, include_str!("init.sh"))?;
    cmd!(sh, "chmod +x {init}").quiet().run()?;
    let archive = directory.join(machine.file_name()).with_extension("cpio");
    let _root = sh.push_dir(&root);
    let pack = "find . | cpio --quiet --create --format newc > \"$1\"";
    cmd!(sh, "sh -c {pack} sh {archive}").quiet().run()?;
    Ok(archive)
}
