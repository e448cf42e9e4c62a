//! Rules of the house that matter enough to be tests.
//!
//! - here: those that hold everywhere.
//! - [`rules`]: those that old code does not keep yet, each with its list in the folder `known`.
//! - [`ratchet`]: lists that only get shorter. `TIDY=shrink cargo test --test tidy` takes off what has
//!   been mended.
//! - [`tokens`], [`items`], [`prose`]: Rust, read as far as the rules need it.

#![allow(clippy::unwrap_used, reason = "what cannot happen in a test fails it")]

mod items;
mod prose;
mod ratchet;
mod rules;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All Rust files below a folder of the repository.
fn read_sources(folder: &Path, into: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            read_sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            into.push((path, text));
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for folder in ["bench", "checks", "crates", "examples"] {
        read_sources(&root().join(folder), &mut all);
    }
    assert!(all.len() > 20, "the sources are where they are looked for");
    all
}

#[test]
fn the_core_depends_on_nothing() {
    let manifest = read("crates/tidegate-core/Cargo.toml");
    assert!(!manifest.lines().any(|line| line.trim() == "[dependencies]"), "{manifest}");
    let mut core = Vec::new();
    read_sources(&root().join("crates/tidegate-core/src"), &mut core);
    for (path, text) in core {
        for forbidden in ["Instant::now", "SystemTime::now", "std::thread", "std::fs", "std::net"] {
            assert!(!text.contains(forbidden), "{} uses {forbidden}", path.display());
        }
    }
}

#[test]
fn every_file_opens_with_what_it_is() {
    for (path, text) in all_sources() {
        assert!(text.starts_with("//!"), "{} does not open with a //! line", path.display());
    }
}

#[test]
fn no_test_puts_its_thread_to_sleep() {
    // Split, so that this file does not find itself.
    let forbidden = ["thread", "::sleep("].concat();
    for (path, text) in all_sources() {
        let test = path.components().any(|part| part.as_os_str() == "tests");
        assert!(!test || !text.contains(&forbidden), "{} sleeps", path.display());
    }
}

#[test]
fn the_commands_of_the_readme_are_those_that_ci_runs() {
    let (readme, ci, test) = (read("README.md"), read(".ci/run"), read("test"));
    assert!(readme.lines().any(|line| line.starts_with("./test ")), "the README names ./test");
    assert!(ci.lines().any(|line| line == "exec ./test"), "CI runs ./test as it is");
    let mut examples: Vec<_> = fs::read_dir(root().join("examples"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().path().file_stem()?.to_str().map(str::to_owned))
        .filter(|name| name != "Cargo")
        .collect();
    examples.sort();
    let test = test.replace(" \\\n    ", " ");
    let lists = test.lines().filter_map(|line| line.strip_prefix("for example in "));
    let lists = lists.filter_map(|line| line.strip_suffix("; do"));
    let mut run: Vec<_> = lists.flat_map(|list| list.split(' ')).collect();
    run.sort_unstable();
    assert_eq!(run, examples, "./test runs every example");
    let main = "cargo run --release --bin tidegate -- run examples/nightly/tidegate.toml";
    assert!(readme.contains(main), "the README names the main job");
}

/// What an application compiles that adds tidegate as it comes, and what it does not.
#[test]
fn an_application_compiles_few_crates_by_default() {
    let tree = |arguments: &[&str]| -> Vec<String> {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.current_dir(root()).args(["tree", "--locked", "--offline", "-p", "tidegate"]);
        cargo.args(["--edges", "normal,build", "--prefix", "none", "--format", "{lib}"]);
        let answer = cargo.args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{error}");
        let text = String::from_utf8(answer.stdout).unwrap();
        let names: std::collections::BTreeSet<&str> =
            text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
        names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let all = tree(&[]);
    assert!(all.len() <= 42, "{} crates: {all:?}", all.len());
    let none_of =
        ["reqwest", "hyper", "rustls", "openssl", "native_tls", "chrono", "time", "jiff", "regex"];
    assert!(all.iter().all(|name| !none_of.contains(&name.as_str())), "{all:?}");
    let bare = tree(&["--no-default-features"]);
    let sqlite = |name: &String| name.contains("sqlite") || name == "syn" || name == "cc";
    assert!(!bare.iter().any(sqlite) && all.iter().any(sqlite), "{bare:?}");
}
