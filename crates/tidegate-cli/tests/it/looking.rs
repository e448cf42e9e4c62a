//! Looking at runs: list, show, why, logs and limits, beside a run that is alive and after it.

use crate::running::{LONG, until};
use crate::support::{Answer, Scene, golden};
use serde_json::Value;

impl Scene {
    /// Looks at the latest run.
    pub(crate) fn show(&self) -> Value {
        self.call(&["show", "--format", "json"]).json()
    }

    /// How a task of the latest run stands.
    pub(crate) fn state_of(&self, task: &str) -> String {
        let shown = self.call(&["show", "--format", "json"]);
        // Before the run begins there is nothing to be seen.
        let Ok(shown) = serde_json::from_str::<Value>(&shown.out) else { return String::new() };
        let tasks = shown["tasks"].as_array().unwrap().iter();
        let task = tasks.into_iter().find(|shown| shown["name"] == task).unwrap();
        task["state"].as_str().unwrap().to_owned()
    }

    /// Waits until a task of the latest run stands like this.
    pub(crate) async fn stands(&self, task: &str, state: &str) {
        until(&format!("{task} is {state}"), || self.state_of(task) == state).await;
    }

    /// The reasons why a task does not run.
    pub(crate) fn reasons(&self, task: &str) -> Vec<Value> {
        let why = self.call(&["why", task, "--format", "json"]).json();
        why["tasks"][0]["reasons"].as_array().unwrap().clone()
    }
}

impl Answer {
    /// What it complained of, if something was not there or could not be done.
    pub(crate) fn undone(self) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(1), ""), "{}", self.err);
        self.err
    }

    /// What it complained of, if the store cannot be used.
    pub(crate) fn unusable(self) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(4), ""), "{}", self.err);
        self.err
    }
}

/// The words without times, ids and the width of columns, which differ from run to run.
pub(crate) fn still(text: &str) -> String {
    let is_time = |word: &str| {
        let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let number = word.len() > unit.len();
        number
            && ["ms", "s", "m", "h"].iter().any(|known| unit.starts_with(known))
            && unit.len() < 6
    };
    let calm = |word: &str| {
        let inner = word.trim_matches(['(', ')', ',', ';', ':']);
        let lower = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let new = match inner {
            id if id.len() == 26 && id.starts_with("01") && id.chars().all(lower) => "RUN",
            id if id.len() == 10 && id.starts_with("01") && id.chars().all(lower) => "ID",
            at if at.len() == 24 && at.ends_with('Z') && at.contains('T') => "TIME",
            time if is_time(time) => "SPAN",
            queue if queue.trim_matches('"').starts_with("run-") => "QUEUE",
            _ => inner,
        };
        word.replacen(inner, new, usize::from(!inner.is_empty()))
    };
    let line = |line: &str| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let words: Vec<_> = line.split_whitespace().map(calm).collect();
        // A worker that looks may have come before the one that works.
        let of_worker = |at: usize| at > 0 && words[at - 1] == "worker";
        let words = words.iter().enumerate().map(|(at, word)| match of_worker(at) {
            true => word.replace(|letter: char| letter.is_ascii_digit(), "N"),
            false => word.clone(),
        });
        let words: Vec<_> = words.collect();
        let ids: Vec<_> = words.iter().map(|word| no_ids_in_paths(word)).collect();
        format!("{indent}{}\n", ids.join(" "))
    };
    text.lines().map(line).collect()
}

/// The text with each paragraph on one line.
fn unbroken(text: &str) -> String {
    text.replace("\n  ", " ")
}

fn no_ids_in_paths(word: &str) -> String {
    let is_id = |part: &&str| part.len() == 26 && part.starts_with("01");
    match word.split('/').find(is_id) {
        Some(id) => word.replace(id, "RUN"),
        None => word.to_owned(),
    }
}

/// A run in which tasks stand in many ways, until there is a file `enough`.
const MANY: &str = r#"
[run]
name = "nightly"
parallel_limit = 2
on_failure = "keep_going"
[limits]
api = 1
[tasks.fetch]
limits = ["api"]
run = "echo fetched; while [ ! -e enough ]; do sleep 0.02; done"
[tasks.bad]
run = "echo oops >&2; exit 3"
retries = 1
backoff = "10ms"
[tasks.parts]
each = { items = ["x", "y"] }
run = "echo {}; test {} = x"
[tasks.second]
limits = ["api"]
run = "echo second"
[tasks.load]
after = ["bad"]
when = "all_done"
wait_for = { file = "schema.sql", every = "1s" }
run = "echo load"
[tasks.last]
after = ["load", "second"]
run = "echo last"
"#;

async fn many(scene: &Scene) {
    for (task, state) in [("parts", "failed"), ("load", "deferred"), ("fetch", "active")] {
        scene.stands(task, state).await;
    }
}

#[tokio::test]
async fn a_run_is_seen_from_beside_while_it_lives_and_after() {
    let scene = Scene::with(MANY);
    let running = scene.begin(&["run"]);
    many(&scene).await;
    golden("golden/list.txt", &still(&scene.call(&["list"]).good()));
    golden("golden/show.txt", &still(&scene.call(&["show"]).good()));
    golden("golden/why.txt", &still(&unbroken(&scene.call(&["why"]).good())));
    let all = still(&scene.call(&["limits"]).good());
    assert_eq!(all, "LIMIT ALLOWS IN USE WAITING\napi 1 at once 1 1\n");
    for arguments in [&["list"][..], &["show"], &["why"], &["limits"]] {
        let text = scene.call(arguments).good();
        let long = text.lines().find(|line| line.chars().count() > 80 && !line.contains("log "));
        assert_eq!(long, None, "{text}");
    }
    scene.touch("enough");
    scene.touch("schema.sql");
    assert_eq!(running.end().code, Some(1));
    golden("golden/show-ended.txt", &still(&scene.call(&["show"]).good()));
    let why = scene.call(&["why"]).good();
    assert_eq!(why, "run 1 (nightly): failed\n");
    assert!(scene.call(&["why", "bad"]).good().contains("- it has failed (error) at "));
    assert!(scene.call(&["why", "last"]).good().contains("- it has succeeded at "));
}

#[tokio::test]
async fn what_is_seen_is_written_as_json_too() {
    let scene = Scene::with(MANY);
    let running = scene.begin(&["run"]);
    many(&scene).await;
    let list = scene.call(&["list", "--format", "json"]).json();
    assert_eq!(list["version"], 1);
    let run = &list["runs"][0];
    assert_eq!(
        (&run["number"], &run["name"], &run["state"]),
        (&1.into(), &"nightly".into(), &"open".into())
    );
    assert_eq!((&run["succeeded"], &run["total"]), (&0.into(), &6.into()));
    let show = scene.show();
    assert_eq!((&show["version"], &show["run"]["id"]), (&1.into(), &run["id"]));
    assert_eq!(show["run"]["served"], true);
    let names: Vec<_> =
        show["tasks"].as_array().unwrap().iter().map(|task| &task["name"]).collect();
    assert_eq!(names, ["fetch", "bad", "parts", "second", "load", "last"]);
    let [fetch, bad, parts, second, load, last] = [0, 1, 2, 3, 4, 5].map(|at| &show["tasks"][at]);
    assert!(fetch["took_ms"].is_u64() && fetch["log"].as_str().unwrap().ends_with("/fetch.1.log"));
    assert_eq!(
        (&bad["state"], &bad["reason"], &bad["attempt"]),
        (&"failed".into(), &"error".into(), &2.into())
    );
    assert_eq!(bad["attempts"], 2);
    assert!(bad["error"].as_str().unwrap().contains("exit code 3"));
    assert_eq!(parts["items"]["total"], 2);
    assert_eq!(parts["items"]["states"], serde_json::json!({ "succeeded": 1, "failed": 1 }));
    assert!(second["queued_ms"].is_u64() && second["took_ms"].is_null());
    assert_eq!(load["waits_for"]["what"], "schema.sql");
    assert_eq!(last["after"], serde_json::json!(["load", "second"]));
    let limits = scene.call(&["limits", "--format", "json"]).json();
    let right = serde_json::json!([{ "name": "api", "key": "", "at_once": 1, "rate": null, "in_use": 1, "waiting": 1 }]);
    assert_eq!((&limits["version"], &limits["limits"]), (&1.into(), &right));
    scene.touch("enough");
    scene.touch("schema.sql");
    running.end();
}

#[tokio::test]
async fn why_names_the_holder_of_a_limit_the_file_and_the_tasks_waited_for() {
    let scene = Scene::with(MANY);
    let running = scene.begin(&["run"]);
    many(&scene).await;
    let [limit] = &scene.reasons("second")[..] else { panic!("there is one reason") };
    assert_eq!((&limit["reason"], &limit["limit"]), (&"limit_full".into(), &"api".into()));
    assert_eq!(limit["holders"][0]["task"], "fetch");
    assert!(scene.call(&["why", "second"]).good().contains("held by \"fetch\" of run"));
    let [file] = &scene.reasons("load")[..] else { panic!("there is one reason") };
    assert_eq!((&file["reason"], &file["what"]), (&"waits".into(), &"schema.sql".into()));
    let [blocked] = &scene.reasons("last")[..] else { panic!("there is one reason") };
    let tasks = serde_json::json!([{ "task": "load", "state": "deferred" }, { "task": "second", "state": "ready" }]);
    assert_eq!((&blocked["reason"], &blocked["tasks"]), (&"blocked_by".into(), &tasks));
    assert_eq!(scene.reasons("fetch")[0]["reason"], "running");
    // All that do not run, and no other.
    let why = scene.call(&["why", "nightly", "--format", "json"]).json();
    let tasks: Vec<_> = why["tasks"].as_array().unwrap().iter().map(|task| &task["task"]).collect();
    assert_eq!(tasks, ["second", "load", "last"]);
    scene.touch("enough");
    scene.touch("schema.sql");
    running.end();
}

#[tokio::test]
async fn why_knows_the_place_of_an_item_in_the_queue_and_guesses_when_it_begins() {
    let items = r#"each = { items = ["a", "b", "slow", "c", "d", "e"] }"#;
    let scene = Scene::with(&format!(
        "[tasks.parts]\n{items}\nrun = \"\"\"if [ {{}} = slow ]; then {LONG}; fi\"\"\"\n"
    ));
    let running = scene.begin(&["run", "-j1"]);
    scene.begun(1).await;
    let of = |item: &str| scene.call(&["why", item, "--format", "json"]).json()["tasks"][0].clone();
    // The next is claimed ahead.
    assert_eq!(of("parts[3]")["reasons"][0]["reason"], "claimed");
    let (next, last) = (of("parts[4]"), of("parts[5]"));
    let place = |why: &Value| {
        assert_eq!(why["reasons"][0]["reason"], "no_slot", "{why}");
        why["reasons"][0]["before"].as_u64().unwrap()
    };
    assert_eq!((place(&next), place(&last)), (0, 1));
    let estimate = |why: &Value| why["estimate_ms"].as_u64().unwrap();
    assert!(estimate(&next) <= estimate(&last));
    let text = scene.call(&["why", "parts[5]"]).good();
    assert!(unbroken(&text).contains("1 ready task goes before it"), "{text}");
    assert!(text.contains("\n  estimate: in about "), "{text}");
    // The task itself waits for its items, and those that do not run are told with it.
    let text = scene.call(&["why", "parts"]).good();
    assert!(text.contains("parts of run 1 (") && text.contains("parts[3] of run 1 ("), "{text}");
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
}

#[tokio::test]
async fn logs_are_byte_exact_and_those_of_a_run_have_headings_on_stderr() {
    let scene = Scene::with(
        r#"
        [tasks.a]
        run = "printf '\\377\\000\\nx'"
        [tasks.b]
        after = ["a"]
        retries = 1
        backoff = "1ms"
        run = "echo try $TIDEGATE_ATTEMPT; test $TIDEGATE_ATTEMPT = 2"
        [tasks.each]
        after = ["b"]
        each = { items = ["x", "y"] }
        run = "echo {}"
        "#,
    );
    scene.call(&["run", "-j1", "--show", "none"]).succeeded();
    let bytes = scene.command("", &["logs", "a"]).output().unwrap();
    assert_eq!((&bytes.stdout[..], &bytes.stderr[..]), (&b"\xff\0\nx"[..], &b""[..]));
    assert_eq!(scene.call(&["logs", "b"]).good(), "try 2\n");
    assert_eq!(scene.call(&["logs", "1/b", "--attempt", "1"]).good(), "try 1\n");
    assert_eq!(scene.call(&["logs", "each[1]"]).good(), "y\n");
    let items = scene.call(&["logs", "each"]);
    assert_eq!(
        (items.out.as_str(), items.err.as_str()),
        ("x\ny\n", "==> each[0] <==\n==> each[1] <==\n")
    );
    let all = scene.command("", &["logs"]).output().unwrap();
    assert_eq!(all.stdout, b"\xff\0\nxtry 2\nx\ny\n");
    let heads = "==> a <==\n==> b (attempt 2) <==\n==> each[0] <==\n==> each[1] <==\n";
    assert_eq!(String::from_utf8(all.stderr).unwrap(), heads);
    let said = scene.call(&["logs", "b", "--attempt", "5"]).undone();
    assert!(said.contains("there is no log of attempt 5 of task \"b\" of run 1 ("), "{said}");
    assert!(said.contains("it is at attempt 2"), "{said}");
    // One that has not begun has none.
    let scene = scene.file(
        "tidegate.toml",
        "[run]\nname = \"other\"\n[tasks.a]\nrun = \"false\"\n[tasks.b]\nafter = [\"a\"]\nrun = \"true\"\n",
    );
    assert_eq!(scene.call(&["run"]).code, Some(1));
    let said = scene.call(&["logs", "b"]).undone();
    assert_eq!(
        said,
        "tidegate: there is no log of task \"b\" of run 7 (other): it has not begun\n"
    );
    assert_eq!(scene.call(&["logs", "a"]).code, Some(0));
    // Whoever reads no further has what they wanted.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = scene.command("", &["logs"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test]
async fn a_log_is_followed_until_its_task_has_ended_over_all_attempts() {
    let scene = Scene::with(
        r#"
        [tasks.a]
        retries = 1
        backoff = "1ms"
        run = "echo one; while [ ! -e more ]; do sleep 0.02; done; echo two $TIDEGATE_ATTEMPT; test $TIDEGATE_ATTEMPT = 2"
        [tasks.b]
        after = ["a"]
        run = "while [ ! -e enough ]; do sleep 0.02; done; echo b"
        "#,
    );
    let running = scene.begin(&["run"]);
    scene.stands("a", "active").await;
    // What each of them shows goes to a file, so that it is seen when.
    let follow = |arguments: &[&str], into: &str| {
        let file = |name: String| std::fs::File::create(scene.path().join(name)).unwrap();
        let mut command = scene.command("", arguments);
        command.stdout(file(into.to_owned())).stderr(file(format!("{into}.heads")));
        command.spawn().unwrap()
    };
    let mut one = follow(&["logs", "a", "--follow"], "one");
    let mut all = follow(&["logs", "-f"], "all");
    for name in ["one", "all"] {
        until("what was written is shown", || scene.read(name) == "one\n").await;
    }
    scene.touch("more");
    // It does not wait for the other task.
    assert_eq!(one.wait().unwrap().code(), Some(0));
    assert_eq!(scene.read("one"), "one\ntwo 1\none\ntwo 2\n");
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
    assert_eq!(all.wait().unwrap().code(), Some(0));
    assert_eq!(scene.read("all"), "one\ntwo 1\none\ntwo 2\nb\n");
    assert_eq!(scene.read("all.heads"), "==> a <==\n==> a (attempt 2) <==\n==> b <==\n");
}

#[test]
fn runs_are_named_by_number_by_id_by_its_beginning_or_by_name() {
    let scene = Scene::with(
        "[run]\nname = \"one\"\n[tasks.a]\nrun = \"true\"\n[tasks.b]\nrun = \"true\"\n",
    )
    .file("two/tidegate.toml", "[run]\nname = \"two\"\n[tasks.c]\nrun = \"true\"\n");
    let store = scene.path().join(".tidegate/store.db");
    let store = store.to_str().unwrap();
    scene.call(&["run"]).succeeded();
    scene.call(&["run", "two/tidegate.toml", "--store", store]).succeeded();
    scene.call(&["run"]).succeeded();
    let list = scene.call(&["list", "--format", "json"]).json();
    let runs = list["runs"].as_array().unwrap();
    let numbers: Vec<_> = runs.iter().map(|run| run["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [4, 3, 1], "the newest first");
    let number = |wanted: &[&str]| {
        let shown = scene.call(&[&["show", "--format", "json"], wanted].concat()).json();
        shown["run"]["number"].as_u64().unwrap()
    };
    let ids: Vec<_> = runs.iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!((number(&[]), number(&["3"]), number(&["two"]), number(&["one"])), (4, 3, 3, 4));
    assert_eq!((number(&[ids[2]]), number(&[&ids[1].to_uppercase()])), (1, 3));
    let same =
        |one: &str, other: &str| one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let shared = same(ids[0], ids[1]).max(same(ids[1], ids[2]));
    assert_eq!(number(&[&ids[1][..=shared]]), 3, "a beginning that no other has");
    // One that several have names them.
    let said = scene.call(&["show", &ids[1][..2]]).wrong();
    assert!(ids.iter().all(|id| said.contains(id)) && said.contains("run 3 (two)"), "{said}");
    assert_eq!(
        scene.call(&["list", "--limit", "2", "--format", "json"]).json()["runs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // A task of the latest run, or of the one that is named.
    assert!(scene.call(&["why", "a"]).good().starts_with("a of run 4 (one): succeeded\n"));
    assert!(scene.call(&["why", "1/a"]).good().starts_with("a of run 1 (one): succeeded\n"));
    assert!(scene.call(&["why", "two/c"]).good().starts_with("c of run 3 (two): succeeded\n"));
    assert_eq!(scene.call(&["why", "two"]).good(), "run 3 (two): succeeded\n");
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let scene = Scene::with("[run]\nname = \"nightly\"\n[tasks.fetch]\nrun = \"true\"\n");
    scene.call(&["run"]).succeeded();
    for (arguments, said) in [
        (&["show", "99"][..], "there is no run \"99\"; the latest: run 1 (nightly)"),
        (&["show", "nighly"], "there is no run \"nighly\"; is \"nightly\" meant?"),
        (&["show", "fetch"], "\"fetch\" is a task of run 1 (nightly); name a run"),
        (&["cancel", "1/fetch"], "\"1/fetch\" is a task of run 1 (nightly); name a run"),
        (&["cancel", "1/zzz"], "there is no run \"1/zzz\"; the latest: run 1 (nightly)"),
        (&["show", "-"], "there is no run \"-\"; the latest: run 1 (nightly)"),
        (&["cancel", "01zzz"], "there is no run \"01zzz\"; the latest: run 1 (nightly)"),
        (&["why", "fetsh"], "there is no task or run \"fetsh\"; is \"fetch\" meant?"),
        (&["why", "1/fetsh"], "run 1 (nightly) has no task \"fetsh\"; is \"fetch\" meant?"),
        (&["why", "1/zzz"], "run 1 (nightly) has no task \"zzz\"; there are fetch"),
        (&["why", "9/fetch"], "there is no run \"9\"; the latest: run 1 (nightly)"),
        (
            &["logs", "fetch[0]"],
            "there is no task or run \"fetch[0]\"; the latest: run 1 (nightly)",
        ),
        (
            &["logs", "fetch:wait"],
            "there is no task or run \"fetch:wait\"; the latest: run 1 (nightly)",
        ),
        (&["wait", ""], "there is no run \"\"; the latest: run 1 (nightly)"),
        (&["pause", "\u{1b}[31m"], "there is no run \"\\u{1b}[31m\"; the latest: run 1 (nightly)"),
        (&["signal", "2", "go"], "there is no run \"2\"; the latest: run 1 (nightly)"),
        (&["signal", "1", "go"], "run 1 (nightly) has ended; nobody would receive the signal"),
        (&["cancel"], "run 1 (nightly) has ended already (succeeded); nothing was done"),
        (&["pause"], "run 1 (nightly) has ended already (succeeded)"),
        (
            &["limits", "set", "api", "2"],
            "there is no limit \"api\" in this store; a limit is made when a file that declares it is run",
        ),
    ] {
        assert_eq!(scene.call(arguments).undone(), format!("tidegate: {said}\n"), "{arguments:?}");
    }
    assert_eq!(scene.call(&["unpause"]).good(), "run 1 (nightly) was not paused\n");
    let none = scene.call(&["list", "--open"]);
    assert_eq!(
        (none.code, none.out.as_str(), none.err.as_str()),
        (Some(0), "", "there are no such runs\n")
    );
    let none = scene.call(&["list", "--queue", "elsewhere", "--format", "json"]).json();
    assert_eq!(none["runs"], serde_json::json!([]));
    let none = scene.call(&["limits"]);
    assert_eq!((none.code, none.err.as_str()), (Some(0), "there are no limits in this store\n"));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_looked_at() {
    let scene = Scene::new();
    for (arguments, said) in [
        (&["list", "--limit", "0"][..], "0 is not in 1..=10000"),
        (&["list", "--limit", "-1"], "-1 is not in 1..=10000"),
        (&["list", "--limit", "abc"], "invalid digit"),
        (&["list", "--format", "yaml"], "text, json"),
        (&["logs", "--attempt", "0"], "0 is not in 1.."),
        (&["wait", "--timeout", "soon"], "it must be a duration such as \"90s\""),
        (&["wait", "--timeout", "-1"], "it must be a duration"),
        (&["signal", "1", "go", "{x"], "it must be JSON"),
        (&["signal", "1"], "<NAME>"),
        (&["pause", "1", "--all"], "cannot be used with"),
        (&["pause", "--queue", "q", "--all"], "cannot be used with"),
        (&["unpause", "1", "--queue", "q"], "cannot be used with"),
        (&["limits", "set", "api"], "<SPEC>"),
        (&["limits", "set", "api", "0"], "it must be a whole number of at least 1"),
        (&["limits", "set", "api", "-1"], "it must be a whole number of at least 1"),
        (&["limits", "set", "api", "abc"], "it must be a whole number of at least 1"),
        (&["store", "prune", "--older-than", "abc"], "it must be a duration"),
        (&["store", "walk"], "unrecognized subcommand"),
        (&["store"], "Usage:"),
        (&["list", "extra"], "unexpected argument"),
    ] {
        let wrong = scene.call(arguments).wrong();
        assert!(wrong.contains(said), "{arguments:?}: {wrong}");
    }
    assert_eq!(scene.files().len(), 0);
}

const LOOKS: [&[&str]; 14] = [
    &["list"],
    &["show"],
    &["logs"],
    &["why"],
    &["limits"],
    &["limits", "set", "a", "1"],
    &["wait"],
    &["cancel"],
    &["signal", "1", "x"],
    &["pause"],
    &["unpause", "--all"],
    &["store", "check"],
    &["doctor", "--repair"],
    &["store", "prune"],
];

#[test]
fn looking_makes_no_store() {
    let scene = Scene::new().file("empty.db", "").file("folder/x", "");
    let same = ["none.db", "empty.db", "no/folder/x.db"].map(|store| (store, store));
    for arguments in LOOKS {
        for (store, at) in same.into_iter().chain([("folder", "folder/store.db")]) {
            let said = scene.call(&[arguments, &["--store", store]].concat()).undone();
            let right = format!(
                "tidegate: there is no store at FOLDER/{at}; begin a run first, or name another \
                 store with --store\n"
            );
            assert_eq!(said, right, "{arguments:?}");
        }
        let said = scene.call(&[arguments, &["--store", "memory:"]].concat()).undone();
        assert!(said.contains("memory: is gone with its process"), "{said}");
        let said = scene.call(&[arguments, &["--store", "redis://x"]].concat()).wrong();
        assert!(said.contains("\"redis://x\" is not the address of a store"), "{said}");
    }
    assert_eq!(scene.files().len(), 3, "{:?}", scene.files());
    assert_eq!(scene.read("empty.db"), "");
}

#[test]
fn a_file_that_is_no_store_is_named_and_left_alone() {
    let text = "not a database, but long enough to be looked at as one. ".repeat(20);
    let scene = Scene::new().file("notes.txt", &text);
    for arguments in LOOKS {
        let said = scene.call(&[arguments, &["--store", "notes.txt"]].concat()).unusable();
        assert!(said.contains("FOLDER/notes.txt is not a database"), "{said}");
    }
    assert_eq!(scene.read("notes.txt"), text);
    assert_eq!(scene.files().len(), 1, "{:?}", scene.files());
}

/// An empty database of another program.
fn foreign() -> Vec<u8> {
    let mut page = vec![0; 4_096];
    page[..16].copy_from_slice(b"SQLite format 3\0");
    page[16..24].copy_from_slice(&[0x10, 0, 1, 1, 0, 64, 32, 32]);
    for (at, number) in
        [(24, 1), (28, 1), (44, 4), (56, 1), (68, 0x0f05_5111), (92, 1), (96, 3_045_000)]
    {
        page[at..at + 4].copy_from_slice(&u32::to_be_bytes(number));
    }
    page[100..108].copy_from_slice(&[13, 0, 0, 0, 0, 0x10, 0, 0]);
    page
}

#[test]
fn a_database_of_another_program_is_named_and_left_alone() {
    let scene = Scene::new().file("other.db", foreign());
    for arguments in LOOKS {
        let said = scene.call(&[arguments, &["--store", "other.db"]].concat()).unusable();
        assert!(said.contains("FOLDER/other.db is a database of another program"), "{said}");
    }
    assert_eq!(std::fs::read(scene.path().join("other.db")).unwrap(), foreign());
}

#[test]
fn a_run_that_goes_on_with_another_names_it_and_what_it_has_taken_over() {
    let scene = Scene::with(
        "[tasks.a]\nrun = \"true\"\n[tasks.b]\nafter = [\"a\"]\nrun = \"test -e mended\"\n",
    );
    assert_eq!(scene.call(&["run"]).code, Some(1));
    let old = scene.show()["run"]["id"].as_str().unwrap().to_owned();
    scene.touch("mended");
    scene.call(&["run", "--resume"]).succeeded();
    let shown = scene.show();
    assert_eq!(
        (&shown["run"]["retry_of"], &shown["run"]["state"]),
        (&old.as_str().into(), &"succeeded".into())
    );
    let taken_over = [0, 1].map(|task| shown["tasks"][task]["taken_over"].as_bool().unwrap());
    assert_eq!(taken_over, [true, false]);
    let text = scene.call(&["show"]).good();
    assert!(text.contains(&format!("\n  goes on with run {old}\n")), "{text}");
    assert!(text.contains("\na     taken over "), "{text}");
}

#[test]
fn a_store_without_runs_says_so() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    scene.call(&["run"]).succeeded();
    scene.call(&["store", "prune", "--older-than", "0s"]).good();
    for arguments in [&["show"][..], &["why"], &["logs"], &["wait"], &["cancel"], &["pause"]] {
        let said = scene.call(arguments).undone();
        assert_eq!(said, "tidegate: there is no run in this store yet\n");
    }
    assert_eq!(
        scene.call(&["show", "1"]).undone(),
        "tidegate: there is no run \"1\"; there is no run in this store yet\n"
    );
}

#[test]
fn help_of_each_command_fits_into_eighty_columns() {
    let scene = Scene::new();
    for name in [
        "list",
        "show",
        "logs",
        "why",
        "limits",
        "limits set",
        "wait",
        "cancel",
        "signal",
        "pause",
        "unpause",
        "store",
        "store check",
        "store prune",
        "store backup",
        "store copy",
        "doctor",
    ] {
        let words: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        let text = scene.call(&words).good();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        golden(format!("golden/help-{}.txt", name.replace(' ', "-")), &text);
    }
}

#[tokio::test]
async fn what_an_application_has_stored_is_seen_too() {
    use tidegate::{Context, Engine, Task, TaskError, TaskHandle, Workflow};
    async fn double(context: &mut Context<u64>) -> Result<u64, TaskError> {
        Ok(context.input() * 2)
    }
    async fn begins(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
        for number in 0..3_u64 {
            handle.run_child("double", number).await?;
        }
        Ok(())
    }
    let scene = Scene::new();
    let path = scene.path().join("jobs.db");
    let engine = Engine::builder(format!("sqlite:{}", path.display()))
        .workflow(Workflow::of(Task::new("double", double)).unwrap())
        .workflow(
            Workflow::builder("evil\u{1b}[31m")
                .task(Task::new("be\rgins", begins))
                .build()
                .unwrap(),
        )
        .start()
        .await
        .unwrap();
    let run = engine.submit("evil\u{1b}[31m", ()).await.unwrap();
    run.wait().await.unwrap();
    // The runs that tasks have begun are not in the way.
    let list = scene.call(&["list", "--store", "jobs.db"]).good();
    assert_eq!(list.lines().count(), 2, "{list}");
    let shown = scene.call(&["show", "--store", "jobs.db"]).good();
    assert!(shown.contains("\\u{1b}[31m") && shown.contains("be\\rgins"), "{shown}");
    for text in [&list, &shown] {
        assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text:?}");
    }
    assert_eq!(shown.matches("has begun run ").count(), 3, "{shown}");
    assert!(shown.contains("(double): succeeded"), "{shown}");
    let json = scene.call(&["show", "--store", "jobs.db", "--format", "json"]).json();
    assert_eq!(json["tasks"][0]["children"].as_array().unwrap().len(), 3);
    assert!(
        scene.call(&["why", "be\rgins", "--store", "jobs.db"]).good().contains("be\\rgins of run")
    );
    // What is no command has no log.
    let logs = scene.call(&["logs", "be\rgins", "--store", "jobs.db"]);
    assert_eq!((logs.code, logs.out.as_str()), (Some(0), ""));
    assert!(
        logs.err.ends_with(" has written nothing, or nothing of that is kept\n"),
        "{}",
        logs.err
    );
    engine.shutdown(std::time::Duration::ZERO).await;
}
