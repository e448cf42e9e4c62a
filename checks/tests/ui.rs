//! What `#[task]` refuses, and with which words: one file in `ui` for each mistake.
//!
//! They are built in a project of their own with the features that are named in the manifest here,
//! whatever the features of the rest, so that nobody waits for a database or TLS.

#![allow(clippy::unwrap_used)]

/// What the macro finds is said in its own words. What it leaves to the compiler is said in the
/// compiler's, which differ from release to release: those are compared under the one that they were
/// written down with. After a change, `TRYBUILD=overwrite` writes all of them anew.
#[test]
fn invalid_tasks_are_refused_in_plain_words() {
    let compiler = std::process::Command::new("rustc").arg("--version").output().unwrap().stdout;
    // One set for both folders, because each set is a build of its own.
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    if compiler.starts_with(b"rustc 1.95.") {
        cases.compile_fail("tests/ui/types/*.rs");
    }
}
