//! The rules that old code does not keep yet: each compares what it finds with a list in `known`.
//!
//! To start a list anew, remove it and run `TIDY=write cargo test --test tidy`.
//!
//! Product code is counted: `crates/*/src`, the kit included, without files called `tests.rs` and
//! without `#[cfg(test)] mod … { … }`. Length and language of `bench/src` are counted too, its names
//! are not. Names of tests are counted wherever tests are.
//!
//! A function in a trait or in an implementation of one is not asked for its name, because the trait
//! chose it.

use crate::items::SourceFile;
use crate::prose::{Prose, find_banned, read_prose};
use crate::ratchet::{Offences, hold_ratchet};
use crate::{read_sources, root};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Lines of a function, and of a file besides its tests.
const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 500;

/// Names of one word that std and RAII have made everybody's.
const ONE_WORD: [&str; 6] = ["new", "len", "poll", "next", "drop", "decide"];

/// Modules of `tidegate` that do without the one that is built on them.
const LOWER_MODULES: [&str; 6] = ["slot", "wait", "gate", "condition", "batch", "process"];
const UPPER_MODULE: &str = "engine";

/// Files below a folder of the repository, with their paths from its root.
fn files_below(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    read_sources(&root().join(folder), &mut found);
    let from_root = |path: &Path| {
        let path = path.strip_prefix(root()).expect("it was found below the root");
        path.to_str().expect("paths here are Unicode").replace('\\', "/")
    };
    let mut found: Vec<_> =
        found.into_iter().map(|(path, text)| (from_root(&path), text)).collect();
    found.sort();
    found
}

/// All that is not a test.
fn product() -> &'static [SourceFile] {
    static FILES: OnceLock<Vec<SourceFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let files = ["bench", "checks", "crates"].into_iter().flat_map(files_below);
        let is_product = |path: &str| {
            path.contains("/src/")
                && !path.contains("/tests/")
                && !path.ends_with("/tests.rs")
                && !path.ends_with("/test.rs")
        };
        let files = files.filter(|(path, _)| is_product(path));
        files.map(|(path, text)| SourceFile::without_tests(path, &text)).collect()
    })
}

fn crates() -> impl Iterator<Item = &'static SourceFile> {
    product().iter().filter(|file| file.path.starts_with("crates/"))
}

/// Prints a figure, for `--nocapture`.
fn say(name: &str, count: usize, all: usize) {
    println!("{name}: {count} of {all}, {:.1} %", 100.0 * count as f64 / all as f64);
}

#[test]
fn type_names_are_unique_in_the_workspace() {
    let mut shared = Offences::default();
    for file in crates() {
        file.types().iter().for_each(|(name, line)| shared.add(name, &file.path, *line));
    }
    let all = shared.total();
    shared.keep_repeated();
    say("types that share their name", shared.total(), all);
    let rule = "The name of a type is unique in the workspace, public and private.";
    hold_ratchet("shared-type-names", rule, &shared);
}

#[test]
fn function_names_have_a_verb_and_an_object() {
    let mut one_word = Offences::default();
    let mut all = 0;
    for file in crates() {
        for function in file.functions().iter().filter(|function| !function.of_trait) {
            all += 1;
            if !function.name.contains('_') && !ONE_WORD.contains(&function.name.as_str()) {
                one_word.add(&function.name, &file.path, function.line);
            }
        }
    }
    say("functions with names of one word, besides those of traits", one_word.total(), all);
    let rule = "The name of a function has a verb and an object, unless a trait or std names it.";
    hold_ratchet("one-word-functions", rule, &one_word);
}

#[test]
fn sentences_have_nouns_as_subjects() {
    let mut banned = Offences::default();
    for file in product() {
        for (phrase, line) in read_prose(file).iter().flat_map(find_banned) {
            banned.add(phrase, &file.path, line);
        }
    }
    for folder in ["", "docs"] {
        for entry in fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with(".md") {
                let text = fs::read_to_string(entry.path()).unwrap();
                let page = Prose { text, line: 1, is_doc: false };
                let path = Path::new(folder).join(&name).display().to_string();
                find_banned(&page)
                    .iter()
                    .for_each(|(phrase, line)| banned.add(phrase, &path, *line));
            }
        }
    }
    println!("banned subjects {}", banned.total());
    let rule =
        "A sentence has a noun as its subject, not \"whoever\", \"somebody\" or \"so many\".";
    hold_ratchet("banned-subjects", rule, &banned);
}

#[test]
fn functions_and_files_are_short() {
    let mut functions = Offences::of_length();
    let mut files = Offences::of_length();
    for file in product() {
        for function in file.functions().iter().filter(|one| one.length > FUNCTION_LINES) {
            let place = format!("{}:{}", file.path, function.line);
            let name = format!("{} {}", file.package(), function.name);
            functions.add_times(name, place, function.length);
        }
        if file.lines > FILE_LINES {
            files.add_times(&file.path, file.path.clone(), file.lines);
        }
    }
    println!("long functions {}, long files {}", functions.total(), files.total());
    let rule = format!("A function has at most {FUNCTION_LINES} lines.");
    hold_ratchet("long-functions", &rule, &functions);
    let rule = format!("A file has at most {FILE_LINES} lines besides its tests.");
    hold_ratchet("long-files", &rule, &files);
}

#[test]
fn lower_modules_do_without_the_engine() {
    let folder = "crates/tidegate/src/";
    let at_root = product().iter().find(|file| file.path == format!("{folder}lib.rs")).unwrap();
    // What the root passes on from the upper module is not to be had by that way either.
    let passed_on: Vec<String> = at_root.names_passed_on_from(UPPER_MODULE);
    assert!(!passed_on.is_empty(), "the root passes on names of {UPPER_MODULE}");
    let mut upwards = Offences::default();
    for file in product() {
        let Some(path) = file.path.strip_prefix(folder) else { continue };
        let module = path.split(['/', '.']).next().unwrap_or(path);
        for (path, line) in file.paths_from_root() {
            let first = path.split("::").next().unwrap_or(&path);
            if LOWER_MODULES.contains(&module)
                && (first == UPPER_MODULE || passed_on.iter().any(|name| name == first))
            {
                upwards.add(format!("{module} imports {path}"), &file.path, line);
            }
        }
    }
    println!("imports upwards {}", upwards.total());
    let rule = format!("{} do not import {UPPER_MODULE}.", LOWER_MODULES.join(", "));
    hold_ratchet("upward-imports", &rule, &upwards);
}

#[test]
fn test_names_are_sentences_about_behaviour() {
    let mut odd = Offences::default();
    let cases = "crates/tidegate-testkit/src/cases/";
    for (path, text) in ["crates", "bench"].into_iter().flat_map(files_below) {
        let file = SourceFile::whole(path, &text);
        for function in file.functions() {
            let is_test = function.is_test || file.path.starts_with(cases);
            let first = function.name.split('_').next().unwrap_or_default();
            if is_test && ["what", "whatever", "who", "whoever", "whose", "of"].contains(&first) {
                odd.add(&function.name, &file.path, function.line);
            }
        }
    }
    println!("tests named after what, who or of {}", odd.total());
    let rule =
        "The name of a test is a sentence about behaviour; it does not begin with what, who or of.";
    hold_ratchet("test-names", rule, &odd);
}
