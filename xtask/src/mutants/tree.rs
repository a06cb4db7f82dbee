//! The copy of the tree that mutants are made in.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

pub(super) struct Tree {
    /// What it is a copy of.
    pub(super) origin: PathBuf,
    pub(super) path: PathBuf,
}

impl Tree {
    /// Copies what git knows of or would add, as it is now.
    pub(super) fn copy(sh: &Shell, name: &str) -> Result<Tree> {
        let path = sh.current_dir().join("target/mutants").join(name);
        sh.create_dir(&path)?;
        // Anew each time, because a test that is gone must not catch anything; but what was built stays.
        for old in sh.read_dir(&path)?.iter().filter(|old| !old.ends_with("target")) {
            sh.remove_path(old)?;
        }
        let files = "--cached --others --exclude-standard".split(' ');
        let files = cmd!(sh, "git ls-files -z {files...}").read()?;
        for file in files.split_terminator('\0').filter(|file| sh.path_exists(file)) {
            let (from, to) = (sh.current_dir().join(file), path.join(file));
            if let Ok(target) = std::fs::read_link(&from) {
                sh.create_dir(to.parent().unwrap_or(&path))?;
                std::os::unix::fs::symlink(target, &to)?;
                continue;
            }
            sh.write_file(to, sh.read_binary_file(from)?)?;
        }
        rename(sh, &path.join("Cargo.toml"))?;
        Ok(Tree { origin: sh.current_dir(), path })
    }

    /// Runs `check` while `patch` is applied.
    pub(super) fn with_patch<R>(
        &self,
        sh: &Shell,
        patch: &Path,
        check: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.apply(sh, patch, &[])?;
        let result = check();
        self.apply(sh, patch, &["--reverse"])?;
        result
    }

    /// Whether `patch` can be applied.
    pub(super) fn fits(&self, sh: &Shell, patch: &Path) -> Result<()> {
        self.apply(sh, patch, &["--check"]).with_context(|| {
            format!("{} does not fit the code any more: make it anew", patch.display())
        })
    }

    fn apply(&self, sh: &Shell, patch: &Path, more: &[&str]) -> Result<()> {
        let patch = sh.current_dir().join(patch);
        let _there = sh.push_dir(&self.path);
        // The copy is no repository; without this git would look for one above it and skip all.
        let _alone = sh.push_env("GIT_CEILING_DIRECTORIES", self.path.parent().unwrap_or(&patch));
        cmd!(sh, "git apply {more...} {patch}").quiet().run()?;
        Ok(())
    }
}

/// Gives the packages of a copy another version. What is built of them lies beside what is built of the
/// checked tree, and is older or younger than its files; so cargo would take a mutant's test for the tree's own.
fn rename(sh: &Shell, workspace: &Path) -> Result<()> {
    let text = sh.read_file(workspace)?;
    let (before, after) =
        text.split_once("[workspace.package]").context("no [workspace.package]")?;
    let (version, rest) = after.split_once("\"\n").context("no version")?;
    sh.write_file(workspace, format!("{before}[workspace.package]{version}+mutant\"\n{rest}"))?;
    Ok(())
}
