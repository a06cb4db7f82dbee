//! A copy of the tree, to which mutants are applied.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

pub(super) struct Tree {
    /// The original tree.
    pub(super) origin: PathBuf,
    pub(super) path: PathBuf,
}

impl Tree {
    /// Copies the files that git tracks or would add, in their current state.
    pub(super) fn copy(sh: &Shell, name: &str) -> Result<Tree> {
        let path = sh.current_dir().join("target/mutants").join(name);
        sh.create_dir(&path)?;
        // Old files go, because a deleted test must not catch a mutant; built files stay.
        for old in sh.read_dir(&path)?.iter().filter(|old| !old.ends_with("target")) {
            sh.remove_path(old)?;
        }
        let files = "--cached --others --exclude-standard".split(' ');
        let files = cmd!(sh, "git ls-files -z {files...}").read()?;
        let files = files.split_terminator('\0').filter(|file| sh.path_exists(file));
        cmd!(sh, "cp --parents --no-dereference --target-directory {path} {files...}")
            .quiet()
            .run()?;
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

    /// Checks that `patch` applies.
    pub(super) fn check(&self, sh: &Shell, patch: &Path) -> Result<()> {
        self.apply(sh, patch, &["--check"])
            .with_context(|| format!("{} does not apply any more; make it again", patch.display()))
    }

    fn apply(&self, sh: &Shell, patch: &Path, more: &[&str]) -> Result<()> {
        let patch = sh.current_dir().join(patch);
        let _directory = sh.push_dir(&self.path);
        // Without this, git would find the repository around the copy and ignore the copy's files.
        let _ceiling = sh.push_env("GIT_CEILING_DIRECTORIES", self.path.parent().unwrap_or(&patch));
        cmd!(sh, "git apply {more...} {patch}").quiet().run()?;
        Ok(())
    }
}

/// Gives the packages of a copy another version.
///
/// The copy shares a target directory with the checked tree. With one version, cargo would take a
/// test of the one for that of the other.
fn rename(sh: &Shell, workspace: &Path) -> Result<()> {
    let text = sh.read_file(workspace)?;
    let (before, after) =
        text.split_once("[workspace.package]").context("Cargo.toml has no [workspace.package]")?;
    let (version, rest) = after.split_once("\"\n").context("Cargo.toml has no version")?;
    sh.write_file(workspace, format!("{before}[workspace.package]{version}+mutant\"\n{rest}"))?;
    Ok(())
}
