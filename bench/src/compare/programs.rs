//! The two programs that are compared: where they are built, and how they are asked.
//!
//! The other revision has a git worktree below `target/compare`, named by its commit, with a target
//! directory of its own; both stay for the next time. Nothing is built twice that is there.

use crate::cost::Cost;
use crate::sample::SampleLine;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const BENCH: (&str, &str) = ("tidegate-bench", "tidegate-bench");
const COMMAND_LINE: (&str, &str) = ("tidegate-cli", "tidegate");

/// The benchmark of one side.
pub(super) struct BenchProgram {
    /// The commit, in short.
    pub(super) label: String,
    program: PathBuf,
}

/// Both sides, as copies: a build of this tree in the meantime does not change what is measured.
pub(super) struct BenchPrograms {
    pub(super) here: BenchProgram,
    pub(super) base: BenchProgram,
    /// Goes away with them.
    _copies: TempDir,
}

impl BenchPrograms {
    /// Builds both sides, with the command line where a figure runs it.
    pub(super) fn build(revision: Option<&str>, with_command_line: bool) -> Result<Self, String> {
        let root = root();
        let revision = match revision {
            Some(revision) => revision.to_owned(),
            None => read_baseline(&root)?,
        };
        let commit = git(&root, &["rev-parse", "--verify", &format!("{revision}^{{commit}}")])
            .map_err(|error| {
                format!("\"{revision}\" is neither a figure nor a revision: {error}")
            })?;
        let label = git(&root, &["rev-parse", "--short", &commit])?;
        let place = root.join("target/compare");
        let worktree = place.join(&commit);
        check_out(&root, &worktree, &commit)?;
        let copies = tempfile::Builder::new().prefix("programs-").tempdir_in(&place);
        let copies = copies.map_err(|error| format!("{}: {error}", place.display()))?;
        // Names of the same length: a longer path moves the stack, which alone can cost a percent.
        let [here, base] = ["here", "base"].map(|side| copies.path().join(side));
        eprintln!("building {label} in {} …", worktree.display());
        let target = worktree.join("target");
        build_into(&base, &worktree, Some(&target), with_command_line)
            .map_err(|error| format!("{label} cannot be built: {error}"))?;
        eprintln!("building this tree …");
        build_into(&here, &root, None, with_command_line)
            .map_err(|error| format!("this tree cannot be built: {error}"))?;
        Ok(BenchPrograms {
            here: BenchProgram { label: describe(&root)?, program: here.join(BENCH.1) },
            base: BenchProgram { label, program: base.join(BENCH.1) },
            _copies: copies,
        })
    }
}

impl BenchProgram {
    /// The parts that can be sampled.
    pub(super) fn list_parts(&self) -> Result<Vec<String>, String> {
        let listed = self.run(&["sample", "--list"]).map_err(|error| {
            format!(
                "the benchmark of {} has no `sample` ({error}); choose a revision that is not older \
                 than the one in bench/BASELINE",
                self.label
            )
        })?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Measures a part once.
    pub(super) fn sample(&self, part: &str) -> Result<Cost, String> {
        let printed = self.run(&["sample", part]);
        let cost = printed.and_then(|printed| SampleLine::parse(&printed, part));
        cost.map_err(|error| format!("{part} of {} cannot be measured: {error}", self.label))
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        stdout_of(Command::new(&self.program).args(arguments).stderr(Stdio::piped()))
    }
}

/// The repository this program was built from.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the benchmark is a directory of the workspace").to_owned()
}

fn read_baseline(root: &Path) -> Result<String, String> {
    let path = root.join("bench/BASELINE");
    let text = fs::read_to_string(&path);
    let text = text.map_err(|error| format!("no REV is given, and {}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// The commit of this tree, and whether there is more than that.
fn describe(root: &Path) -> Result<String, String> {
    let commit = git(root, &["rev-parse", "--short", "HEAD"])?;
    let changed = git(root, &["status", "--porcelain"])?;
    Ok(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

/// Sees to a worktree of the commit, as it was committed.
fn check_out(root: &Path, worktree: &Path, commit: &str) -> Result<(), String> {
    let path = worktree.to_str().ok_or_else(|| format!("{} is not UTF-8", worktree.display()))?;
    // Without a `.git` of its own it is a plain directory, where git would work on this tree.
    if worktree.join(".git").is_file() {
        let checked_out = git(worktree, &["checkout", "--quiet", "--force", "--detach", commit]);
        checked_out.map_err(|error| format!("{path} cannot be used ({error}); remove it"))?;
    } else {
        // Forced, because git may remember a worktree that was removed with the target directory.
        git(root, &["worktree", "add", "--quiet", "--force", "--detach", path, commit])?;
    }
    Ok(())
}

/// Builds a tree in release and copies its programs. Each package alone, as it is built by hand:
/// together they would share their features.
fn build_into(
    copies: &Path,
    tree: &Path,
    target: Option<&Path>,
    with_command_line: bool,
) -> Result<(), String> {
    fs::create_dir(copies).map_err(|error| format!("{}: {error}", copies.display()))?;
    for (package, binary) in
        [Some(BENCH), with_command_line.then_some(COMMAND_LINE)].into_iter().flatten()
    {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--package", package, "--bin", binary]);
        command.arg("--message-format=json-render-diagnostics").current_dir(tree);
        if let Some(target) = target {
            command.arg("--locked").arg("--target-dir").arg(target);
        }
        let messages = stdout_of(command.stderr(Stdio::inherit()))?;
        let built = messages.lines().find_map(|line| executable(line, binary));
        let built = built.ok_or_else(|| format!("cargo names no executable \"{binary}\""))?;
        fs::copy(&built, copies.join(binary))
            .map_err(|error| format!("{}: {error}", built.display()))?;
    }
    Ok(())
}

/// The program that a message of cargo says it has made.
fn executable(message: &str, binary: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_it = message["target"]["name"] == binary && message["target"]["kind"][0] == "bin";
    message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
}

fn git(tree: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut git = Command::new("git");
    let printed = stdout_of(git.arg("-C").arg(tree).args(arguments).stderr(Stdio::piped()))?;
    Ok(printed.trim_end().to_owned())
}

/// What a command prints, or why it failed.
fn stdout_of(command: &mut Command) -> Result<String, String> {
    let name = Path::new(command.get_program()).display().to_string();
    let answer = command.stdin(Stdio::null()).stdout(Stdio::piped()).output();
    let Output { status, stdout, stderr } = answer.map_err(|error| format!("{name}: {error}"))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        return Err(if said.trim().is_empty() {
            format!("{name}: {status}")
        } else {
            said.trim().to_owned()
        });
    }
    String::from_utf8(stdout).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_is_found_in_the_messages_of_cargo() {
        let message = |kind: &str| {
            let target = format!(r#"{{"name":"tidegate","kind":["{kind}"]}}"#);
            format!(
                r#"{{"reason":"compiler-artifact","target":{target},"executable":"/t/release/x"}}"#
            )
        };
        assert_eq!(executable(&message("bin"), "tidegate"), Some(PathBuf::from("/t/release/x")));
        assert_eq!(executable(&message("lib"), "tidegate"), None);
        assert_eq!(executable(&message("bin"), "tidegate-bench"), None);
        assert_eq!(executable("no JSON", "tidegate"), None);
    }

    #[test]
    fn program_without_samples_is_refused_with_the_reason() {
        let old = BenchProgram { label: "abc1234".into(), program: "false".into() };
        let error = old.list_parts().expect_err("it cannot be listed");
        assert!(error.contains("abc1234 has no `sample`") && error.contains("BASELINE"), "{error}");
    }
}
