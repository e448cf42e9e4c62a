//! The mistakes that `#[task]` refuses, and with which words: one file in `ui` for each mistake.
//!
//! Each is compiled by itself, up to its types and no further, against the library that cargo has built
//! for the tests; its errors are compared with the `.stderr` file beside it. After a change,
//! `UI=overwrite cargo test --workspace --all-features --test ui` writes all of them anew.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, fs, thread};

/// Types listed of those that implement a trait.
const LISTED: usize = 8;

/// The macro's refusals are in its own words. Mistakes that it leaves to the compiler are refused in
/// the compiler's, which differ from release to release: those are compared under the one that they
/// were written down with.
#[test]
fn invalid_tasks_are_refused_in_plain_words() {
    let mut cases = list_cases("tests/ui");
    let compiler = Command::new(compiler_path()).arg("--version").output().unwrap().stdout;
    if compiler.starts_with(b"rustc 1.95.") {
        cases.extend(list_cases("tests/ui/types"));
    }
    let library = find_library();
    let next = AtomicUsize::new(0);
    let check_cases = || {
        let mut complaints = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
            complaints.extend(check_case(case, &library).err());
        }
        complaints
    };
    let complaints: Vec<String> = thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(check_cases)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let (wrong, all) = (complaints.len(), cases.len());
    assert!(wrong == 0, "{wrong} of {all} cases are wrong\n\n{}", complaints.join("\n"));
}

fn compiler_path() -> PathBuf {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()).into()
}

fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn list_cases(folder: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = files.filter(|file| file.extension() == Some("rs".as_ref())).collect();
    assert!(!cases.is_empty(), "there are no cases in {folder}");
    cases.sort();
    cases
}

/// Asks cargo for the library as the tests of the whole workspace have it, which is built by then.
fn find_library() -> PathBuf {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args("test --locked --workspace --all-features --test ui --no-run".split(' '));
    cargo.arg("--message-format=json-render-diagnostics");
    // The test itself lies in `deps` below the profile's directory.
    let test = env::current_exe().unwrap();
    cargo.arg("--target-dir").arg(test.ancestors().nth(3).unwrap());
    // Cargo tells a test about its package. Some build scripts look at that, and would run again.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    let output = cargo.output().unwrap();
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo cannot build the library:\n{problems}");
    let messages = String::from_utf8(output.stdout).unwrap();
    let mut files = messages.lines().filter_map(library_file);
    files.next().unwrap_or_else(|| panic!("cargo names no library tidegate:\n{messages}"))
}

/// The library's file, if cargo's message is about the library.
fn library_file(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).unwrap();
    let target = &message["target"];
    if target["name"] != "tidegate" || target["kind"] != serde_json::json!(["lib"]) {
        return None;
    }
    let mut files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
    files.find(|file| file.ends_with(".rlib")).map(PathBuf::from)
}

/// Compares the errors of a case with those written down, or writes them down.
fn check_case(case: &Path, library: &Path) -> Result<(), String> {
    let Some(errors) = compile_case(case, library) else {
        return Err(format!("{}: it compiles, but must be refused\n", case.display()));
    };
    let file = case.with_extension("stderr");
    if env::var_os("UI").is_some_and(|word| word == "overwrite") {
        fs::write(file, errors).unwrap();
        return Ok(());
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    if expected == errors {
        return Ok(());
    }
    Err(format!(
        "{}: other errors than in {}\n{}",
        case.display(),
        file.display(),
        compare_texts(&expected, &errors)
    ))
}

/// The errors of a case, or nothing if it compiles.
fn compile_case(case: &Path, library: &Path) -> Option<String> {
    let mut compiler = Command::new(compiler_path());
    compiler.args("--edition 2024 --crate-type bin --emit metadata".split(' '));
    // Verbose, because long types are shortened otherwise.
    compiler.args(["--error-format", "json", "--verbose"]);
    compiler.arg("--out-dir").arg(env!("CARGO_TARGET_TMPDIR"));
    compiler.arg("--extern").arg(format!("tidegate={}", library.display()));
    compiler.arg("-L").arg(format!("dependency={}", library.parent().unwrap().display()));
    compiler.arg(Path::new("checks").join(case));
    // Where cargo starts it too, so that it finds the library's sources and cites them.
    compiler.current_dir(workspace_root());
    // Some advice is about cargo, where cargo has started the compiler: it looks for this.
    compiler.env("CARGO_CRATE_NAME", "case");
    let output = compiler.output().unwrap();
    if output.status.success() {
        return None;
    }
    let messages = String::from_utf8(output.stderr).unwrap();
    let errors: Vec<_> = messages.lines().filter_map(|line| plain_error(case, line)).collect();
    Some(errors.join("\n"))
}

/// A message of the compiler as it is written down, if it is about the code.
fn plain_error(case: &Path, message: &str) -> Option<String> {
    let message: Value = serde_json::from_str(message)
        .unwrap_or_else(|_| panic!("{}: the compiler says {message}", case.display()));
    let (text, rendered) = (message["message"].as_str()?, message["rendered"].as_str()?);
    let is_summary = message["level"] == "failure-note" || text.starts_with("aborting due to ");
    (!is_summary).then(|| hide_places(rendered))
}

/// Takes out of an error what differs though no word has changed: paths and line numbers of other
/// files than the case, and with them the width of the margin, which is that of the largest number.
fn hide_places(error: &str) -> String {
    let mut lines: Vec<String> = shorten_lists(error);
    let (mut is_elsewhere, mut margin, mut widest) = (false, 0, 0);
    for line in &mut lines {
        let rest = line.trim_start();
        let number = rest.split(" |").next().unwrap_or_default();
        if let Some(place) = rest.strip_prefix("--> ") {
            margin = line.len() - rest.len();
            let own = place.strip_prefix("checks/").filter(|own| own.starts_with("tests/ui/"));
            is_elsewhere = own.is_none();
            let place = own.map_or_else(|| hide_root(place), str::to_owned);
            *line = format!("{}--> {place}", " ".repeat(margin));
        } else if number.parse::<u32>().is_err() {
            // Below a heading the places begin anew.
            is_elsewhere &= line.starts_with([' ', '.']);
        } else if is_elsewhere {
            *line = line.replacen(number, &" ".repeat(number.len()), 1);
        } else {
            widest = widest.max(number.len());
        }
    }
    let spare = " ".repeat(margin.saturating_sub(widest));
    let lines = lines.iter().map(|line| line.strip_prefix(&spare).unwrap_or(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The lines of an error, with the first few of the types that implement a trait: the others depend
/// on features of other crates.
fn shorten_lists(error: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = error.trim_end().lines().peekable();
    while let Some(line) = rest.next() {
        lines.push(line.to_owned());
        if !line.contains("= help: the following other types implement trait ") {
            continue;
        }
        let indent = line.find("the following").unwrap_or_default();
        let in_list = |line: &&str| line.starts_with(&" ".repeat(indent));
        let types = std::iter::from_fn(|| rest.next_if(in_list));
        // A feature of serde_json that another crate asks for.
        let types: Vec<_> = types.filter(|line| !line.contains("::RawValue")).collect();
        lines.extend(types.iter().take(LISTED).map(|&line| line.to_owned()));
        if types.len() > LISTED {
            lines.push(format!("{:indent$}and $N others", ""));
        }
    }
    lines
}

/// A file of the workspace without the workspace's own path, line and column.
fn hide_root(place: &str) -> String {
    let file = Path::new(place.split(':').next().unwrap_or(place));
    format!("$WORKSPACE/{}", file.strip_prefix(workspace_root()).unwrap_or(file).display())
}

/// The lines in which two texts differ, between those that they begin and end with alike.
fn compare_texts(expected: &str, actual: &str) -> String {
    let [mut expected, mut actual] =
        [expected, actual].map(|text| text.lines().collect::<Vec<_>>());
    let alike = expected.iter().zip(&actual).take_while(|(one, other)| one == other).count();
    let above = expected[..alike].iter().map(|line| format!("  {line}\n")).collect::<String>();
    expected.drain(..alike);
    actual.drain(..alike);
    let alike = expected.iter().rev().zip(actual.iter().rev());
    let alike = alike.take_while(|(one, other)| one == other).count();
    let below = expected.split_off(expected.len() - alike);
    actual.truncate(actual.len() - alike);
    let mark = |sign: char, lines: &[&str]| {
        lines.iter().map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    above + &mark('-', &expected) + &mark('+', &actual) + &mark(' ', &below)
}
