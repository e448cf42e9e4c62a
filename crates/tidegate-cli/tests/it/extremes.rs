//! Values at the ends of their range, in files and on the command line: each is planned, or refused
//! with what would be right.

use crate::support::{Answer, Scene};

/// Times and numbers as they are written in a file.
const VALUES: [&str; 11] = [
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "\"999999999999h\"",
    "\"18446744073709551615\"",
    "\"213503982334d\"",
    "1e308",
];

/// Where a file has such a value.
const PLACES: [&str; 16] = [
    "[run]\nparallel_limit = X\n[tasks.a]\nrun = \"true\"\n",
    "[run]\nparallel_limit = { min = 1, max = X }\n[tasks.a]\nrun = \"true\"\n",
    "[run]\ntask_timeout = X\n[tasks.a]\nrun = \"true\"\n",
    "[limits]\nl = X\n[tasks.a]\nrun = \"true\"\nlimits = [\"l\"]\n",
    "[limits]\nl = { at_once = X }\n[tasks.a]\nrun = \"true\"\nlimits = [\"l\"]\n",
    "[tasks.a]\nrun = \"true\"\ntimeout = X\n",
    "[tasks.a]\nrun = \"true\"\nqueue_timeout = X\n",
    "[tasks.a]\nrun = \"true\"\ndeadline = X\n",
    "[tasks.a]\nrun = \"true\"\nretries = X\n",
    "[tasks.a]\nrun = \"true\"\nretries = 1\nbackoff = X\n",
    "[tasks.a]\nrun = \"true\"\nretries = 1\nbackoff = { initial = X, factor = X, max = X }\n",
    "[tasks.a]\nrun = \"true\"\nweight = X\n",
    "[tasks.a]\nrun = \"true\"\npriority = X\n",
    "[tasks.a]\nrun = \"true\"\nwait_for = [{ delay = X }]\n",
    "[tasks.a]\nrun = \"true\"\nwait_for = [{ file = \"tidegate.toml\", every = X, timeout = X }]\n",
    "[tasks.a]\nrun = \"true\"\nwait_for = [{ file = \"tidegate.toml\", unchanged_for = X }]\n",
];

/// Options with such a value; what stands behind is a command that ends at once.
const OPTIONS: [&[&str]; 7] = [
    &["run", "--dry-run", "-jX"],
    &["run", "--dry-run", "--task-timeout=X"],
    &["each", "-jX", "true", ":::", "1"],
    &["each", "-nX", "true", ":::", "1", "2"],
    &["each", "--max-fail=X", "true", ":::", "1"],
    &["each", "--retries=X", "true", ":::", "1"],
    &["each", "--timeout=X", "true", ":::", "1"],
];

fn assert_decided(what: &str, answer: &Answer) {
    assert!(matches!(answer.code, Some(0 | 2)), "{what}: {answer:?}");
    assert!(!answer.err.contains("panicked"), "{what}: {answer:?}");
    if answer.code == Some(2) {
        assert!(!answer.err.is_empty(), "{what}: the refusal says nothing");
    }
}

#[test]
fn file_with_any_value_is_planned_or_refused() {
    for place in PLACES {
        for value in VALUES {
            let text = place.replace('X', value);
            let answer = Scene::with(&text).call(&["run", "--dry-run"]);
            assert_decided(&text, &answer);
        }
    }
}

#[test]
fn option_with_any_value_is_taken_or_refused() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    for option in OPTIONS {
        for value in VALUES {
            let value = value.trim_matches('"');
            let words: Vec<String> = option.iter().map(|word| word.replace('X', value)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_decided(&words.join(" "), &scene.call(&words));
        }
    }
}

#[test]
fn run_with_the_longest_times_there_are_ends() {
    let longest = "9223372036854775807";
    let text = "[run]\ntask_timeout = X\n[limits]\nl = 4294967295\n[tasks.a]\nrun = \"true\"\n\
                timeout = X\nqueue_timeout = X\ndeadline = X\nretries = 4294967295\nbackoff = X\n\
                priority = -2147483648\nlimits = [\"l\"]\n\
                wait_for = [{ file = \"tidegate.toml\", every = X, timeout = X }]\n";
    let answer = Scene::with(&text.replace('X', longest)).call(&["run"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
}
