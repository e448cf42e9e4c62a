//! That every key counts, and that no text makes reading panic.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const GIVEN: Given = Given { parallel_limit: None, task_timeout: None, cpus: 8 };

fn read(text: &str) -> Result<File, Mistakes> {
    let source = Source { path: "tidegate.toml".into(), text: text.to_owned(), secret: false };
    File::read(source, "/folder".into(), &GIVEN)
}

macro_rules! with_task {
    ($line:literal) => {
        concat!("[tasks.b]\nrun = 'x'\n[tasks.a]\nrun = 'x'\n", $line)
    };
}
/// For each key of each table: a file, and the same with that key.
const KEYS_THAT_COUNT: &[(&str, &str, &str, &str)] = &[
    ("the file", "tasks", "[tasks.a]\nrun = 'x'", "[tasks.a]\nrun = 'x'\n[tasks.b]\nrun = 'x'"),
    ("the file", "limits", "[tasks.a]\nrun = 'x'", "limits.api = 2\n[tasks.a]\nrun = 'x'"),
    ("the file", "run", "[tasks.a]\nrun = 'x'", "run.name = 'n'\n[tasks.a]\nrun = 'x'"),
    ("[run]", "name", RUN_WITHOUT, "run.name = 'n'\ntasks.a.run = 'x'"),
    ("[run]", "parallel_limit", RUN_WITHOUT, "run.parallel_limit = '50%'\ntasks.a.run = 'x'"),
    ("[run]", "task_timeout", RUN_WITHOUT, "run.task_timeout = 5\ntasks.a.run = 'x'"),
    ("[run]", "on_failure", RUN_WITHOUT, "run.on_failure = 'keep_going'\ntasks.a.run = 'x'"),
    ("[run]", "shell", RUN_WITHOUT, "run.shell = ['zsh', '-c']\ntasks.a.run = 'x'"),
    (
        "parallel_limit",
        "min",
        BOUNDS,
        "run.parallel_limit = { min = 3, max = 5 }\ntasks.a.run = 'x'",
    ),
    (
        "parallel_limit",
        "max",
        BOUNDS,
        "run.parallel_limit = { min = 2, max = 6 }\ntasks.a.run = 'x'",
    ),
    ("a limit", "at_once", LIMIT, "limits.api = { rate = '6/1m', at_once = 2 }\ntasks.a.run = 'x'"),
    ("a limit", "rate", LIMIT, "limits.api = { rate = '7/1m' }\ntasks.a.run = 'x'"),
    ("a task", "run", TASK, "[tasks.b]\nrun = 'x'\n[tasks.a]\nrun = 'y'"),
    ("a task", "after", TASK, WITH_AFTER),
    ("a task", "each", TASK, EACH),
    ("a task", "wait_for", TASK, WAIT),
    ("a task", "retries", TASK, with_task!("retries = 1")),
    ("a task", "backoff", TASK, with_task!("backoff = '9s'")),
    (
        "a task",
        "limits",
        "limits.api = 2\n[tasks.a]\nrun = 'x'",
        "limits.api = 2\n[tasks.a]\nrun = 'x'\nlimits = ['api']",
    ),
    ("a task", "weight", TASK, with_task!("weight = 2")),
    ("a task", "timeout", TASK, with_task!("timeout = 2")),
    ("a task", "env", TASK, with_task!("env = { A = 'b' }")),
    ("a task", "env_file", TASK, with_task!("env_file = 'some.env'")),
    ("a task", "dir", TASK, with_task!("dir = 'd'")),
    ("a task", "when", TASK, with_task!("when = 'all_done'")),
    ("a task", "priority", TASK, with_task!("priority = 2")),
    ("a task", "queue_timeout", TASK, with_task!("queue_timeout = 2")),
    ("a task", "deadline", TASK, with_task!("deadline = 2")),
    ("each", "items", EACH, with_task!("each = { items = ['c'] }")),
    ("each", "glob", EACH, with_task!("each = { glob = '*' }")),
    ("each", "lines", EACH, with_task!("each = { lines = 'l' }")),
    ("wait_for", "file", WAIT, with_task!("wait_for = { file = 'g' }")),
    ("wait_for", "unchanged_for", WAIT, with_task!("wait_for = { file = 'f', unchanged_for = 1 }")),
    ("wait_for", "tcp", WAIT, with_task!("wait_for = { tcp = 'h:1' }")),
    ("wait_for", "http", WAIT, with_task!("wait_for = { http = 'http://h' }")),
    ("wait_for", "command", WAIT, with_task!("wait_for = { command = 'c' }")),
    ("wait_for", "signal", WAIT, with_task!("wait_for = { signal = 's' }")),
    ("wait_for", "delay", WAIT, with_task!("wait_for = { delay = 1 }")),
    ("wait_for", "every", WAIT, with_task!("wait_for = { file = 'f', every = 1 }")),
    ("wait_for", "timeout", WAIT, with_task!("wait_for = { file = 'f', timeout = 1 }")),
    ("backoff", "initial", BACKOFF, with_task!("backoff = { initial = 2 }")),
    ("backoff", "factor", BACKOFF, with_task!("backoff = { factor = 3.5 }")),
    ("backoff", "max", BACKOFF, with_task!("backoff = { max = 9 }")),
    ("backoff", "jitter", BACKOFF, with_task!("backoff = { jitter = 0 }")),
];

const RUN_WITHOUT: &str = "tasks.a.run = 'x'";
const BOUNDS: &str = "run.parallel_limit = { min = 2, max = 5 }\ntasks.a.run = 'x'";
const LIMIT: &str = "limits.api = { rate = '6/1m' }\ntasks.a.run = 'x'";
const TASK: &str = with_task!("");
const WITH_AFTER: &str = with_task!("after = ['b']");
const EACH: &str = with_task!("each = { items = ['b'] }");
const WAIT: &str = with_task!("wait_for = { file = 'f' }");
const BACKOFF: &str = with_task!("backoff = {}");

/// A file, or the mistake that something was looked for and is not there.
fn seen(text: &str) -> Result<File, String> {
    read(text).map_err(|mistakes| mistakes.to_string())
}

#[test]
fn every_key_that_is_known_changes_what_the_file_says() {
    for (table, key, without, with) in KEYS_THAT_COUNT {
        let before = seen(without).unwrap_or_else(|error| panic!("{table}, {key}: {error}"));
        match seen(with) {
            Ok(file) => assert_ne!(file, before, "{table}, {key}"),
            Err(error) => {
                // The only value that is a file to be read.
                assert!(*key == "env_file" && error.contains("there is no such file"), "{error}");
            }
        }
    }
    let tried: BTreeSet<_> =
        KEYS_THAT_COUNT.iter().map(|(table, key, ..)| (*table, *key)).collect();
    let known = TABLES.iter().flat_map(|table| table.keys.iter().map(|key| (table.what, key.name)));
    assert_eq!(tried, known.collect(), "every key is tried");
}

#[test]
fn no_synonym_is_a_key_and_each_stands_for_one() {
    for table in TABLES {
        let mut seen = BTreeSet::new();
        for (name, others) in table.synonyms {
            assert!(table.key(name).is_some(), "{name}");
            for other in *others {
                assert!(table.key(other).is_none(), "{other} is a key of {}", table.what);
                assert!(seen.insert(other), "{other} stands for two keys of {}", table.what);
            }
        }
    }
}

#[test]
fn a_key_that_is_needed_is_missed() {
    for (text, key) in [
        ("", "tasks"),
        ("[tasks.a]", "run"),
        ("run.parallel_limit = { max = 2 }\ntasks.a.run = 'x'", "min"),
        ("run.parallel_limit = { min = 2 }\ntasks.a.run = 'x'", "max"),
    ] {
        assert!(seen(text).is_err(), "without {key}");
    }
    let needed = TABLES.iter().flat_map(|table| table.keys).filter(|key| key.needed);
    let needed: BTreeSet<_> = needed.map(|key| key.name).collect();
    assert_eq!(needed, BTreeSet::from(["tasks", "run", "min", "max"]), "each is tried above");
}

#[test]
fn relative_paths_begin_in_the_folder_of_the_file() {
    let file = seen(with_task!("dir = 'd'\nwait_for = { file = '../f' }\neach = { lines = '/l' }"))
        .unwrap();
    let task = &file.tasks[1];
    assert_eq!(task.dir, PathBuf::from("/folder/d"));
    assert_eq!(task.each, Some(Each::Lines("/l".into())));
    let path = PathBuf::from("/folder/../f");
    assert_eq!(task.wait_for[0].what, Awaited::File { path, unchanged_for: None });
    assert_eq!(file.tasks[0].dir, PathBuf::from("/folder"));
}

#[test]
fn what_a_task_says_goes_behind_what_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("e"), "A=1\nB=\"2\\n\"\n").unwrap();
    let text = "[tasks.a]\nrun = 'x'\nenv_file = 'e'\nenv = { A = 3 }\n".to_owned();
    let source = Source { path: "tidegate.toml".into(), text, secret: false };
    let file = File::read(source, folder.path().into(), &GIVEN).unwrap();
    let env: Vec<_> = file.tasks[0].env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(env, [("A", "1"), ("B", "2\n"), ("A", "3")]);
}

/// Pieces of which files are made, and some of which they are not.
fn piece() -> impl Strategy<Value = String> {
    let names = TABLES.iter().flat_map(|table| table.keys.iter().map(|key| key.name));
    let synonyms = TABLES.iter().flat_map(|t| t.synonyms.iter().flat_map(|(_, others)| *others));
    let words: Vec<String> = names
        .chain(synonyms.copied())
        .flat_map(|name| [format!("{name} = "), format!("{name}.")])
        .collect();
    let values = [
        "[tasks.a]\n",
        "[tasks.b]\n",
        "[run]\n",
        "[limits]\n",
        "[[tasks]]\n",
        "[tasks.\"\"]\n",
        "\"a\"\n",
        "\"5m\"\n",
        "'x {}'\n",
        "4\n",
        "-1\n",
        "0\n",
        "1.5\n",
        "inf\n",
        "nan\n",
        "true\n",
        "\"50%\"\n",
        "[\"a\", \"b\"]\n",
        "[]\n",
        "{}\n",
        "{ ",
        " }\n",
        "[",
        "]",
        ", ",
        "=",
        "\n",
        "\r\n",
        "\"",
        "'''",
        "#",
        "\u{feff}",
        "ä",
        "→",
        "\0",
        "1979-05-27T07:32:00Z\n",
        "0xffffffffffffffffff\n",
        "\"60/1m\"\n",
        "run = \"x\"\n",
        "after = [\"a\"]\n",
        "after = [\"b\"]\n",
        "file = \"f\"",
        "items = [1, \"b\"]",
    ];
    prop_oneof![
        proptest::sample::select(words),
        proptest::sample::select(values.map(str::to_owned).to_vec()),
        ".{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn no_text_makes_reading_panic(pieces in proptest::collection::vec(piece(), 0..40)) {
        match read(&pieces.concat()) {
            Ok(file) => prop_assert_eq!(file.tasks.len(), file.graph.task_count()),
            Err(mistakes) => prop_assert!(mistakes.to_string().starts_with("tidegate.toml:")),
        }
    }

    #[test]
    fn a_good_file_with_something_else_in_it_makes_no_panic(
        at in 0_usize..2_000, gone in 0_usize..20, piece in piece(),
    ) {
        let text = include_str!("../../tests/nightly.toml");
        let start = text.floor_char_boundary(at.min(text.len()));
        let end = text.floor_char_boundary((start + gone).min(text.len()));
        let text = format!("{}{piece}{}", &text[..start], &text[end..]);
        if let Err(mistakes) = read(&text) {
            prop_assert!(mistakes.to_string().contains(".toml:"));
        }
    }
}
