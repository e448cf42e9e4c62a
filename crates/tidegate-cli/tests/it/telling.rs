//! What is told of a run to programs, in files and pipes.

use crate::running::{signal, until};
use crate::support::{Scene, golden};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;

/// One of each kind, one after the other.
fn scene() -> Scene {
    Scene::with(
        r#"
        [run]
        name = "test"
        parallel_limit = 1
        on_failure = "keep_going"
        [tasks.good]
        run = "echo out; printf 'no end'"
        [tasks.again]
        after = ["good"]
        retries = 1
        backoff = "10ms"
        run = "test -e second || { touch second; exit 1; }"
        [tasks.each]
        after = ["again"]
        each = { items = ["x"] }
        run = "echo {}; exit 1"
        [tasks.waits]
        after = ["each"]
        when = "all_done"
        wait_for = { delay = "10ms" }
        run = "printf 'a<b>&\"c\\033[1m\\377\\n'; exit 3"
        [tasks.skipped]
        after = ["waits"]
        run = "true"
        [tasks.slow]
        after = ["waits"]
        when = "all_done"
        timeout = "50ms"
        run = "sleep 3600"
        "#,
    )
}

/// The events without what differs from run to run.
fn events(text: &str) -> Vec<Value> {
    let calm = |line: &str| {
        assert!(line.starts_with("{\"version\":1,\"event\":\""), "{line}");
        let mut event: Value = serde_json::from_str(line).unwrap();
        let at = event["at"].as_str().unwrap();
        let is_right = |(letter, form): (u8, u8)| match form {
            b'0' => letter.is_ascii_digit(),
            _ => letter == form,
        };
        let form = "0000-00-00T00:00:00.000Z";
        assert!(at.len() == form.len() && at.bytes().zip(form.bytes()).all(is_right), "{at}");
        event["at"] = json!("AT");
        for name in ["run", "duration_ms", "avg_task_ms", "log"] {
            if let Some(value) = event.get_mut(name) {
                assert!(value.is_u64() || value.is_string(), "{line}");
                *value = json!(name.to_uppercase());
            }
        }
        event
    };
    text.lines().map(calm).collect()
}

#[test]
fn programs_are_told_one_event_on_a_line_and_nothing_else() {
    let scene = scene();
    let answer = scene.call(&["run", "--format", "json"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""));
    let events = events(&answer.out);
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    golden("golden/events.jsonl", &lines);
}

#[test]
fn the_last_event_counts_every_command_once() {
    let scene = scene();
    let answer = scene.call(&["run", "--format", "json"]);
    let last: Value = serde_json::from_str(answer.out.lines().last().unwrap()).unwrap();
    let number = |name: &str| last[name].as_u64().unwrap();
    assert_eq!(last["event"], "finished");
    let parts = ["succeeded", "failed", "cancelled", "skipped", "unfinished"].map(number);
    assert_eq!(parts, [2, 3, 0, 1, 0]);
    assert_eq!(number("total"), parts.iter().sum::<u64>());
    assert_eq!(number("parallel_limit"), 1);
    // Five have begun, one of which took its time-out.
    assert!(number("avg_task_ms") >= 50 / 5 && number("avg_task_ms") <= number("duration_ms"));
}

#[test]
fn the_last_event_comes_also_when_nothing_was_left_to_do() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    scene.call(&["run", "--format", "json"]);
    let answer = scene.call(&["run", "--resume", "--format", "json"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    let events = events(&answer.out);
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["note", "finished"]);
}

/// The file without times.
fn calm_cases(xml: &str) -> String {
    let mut calm = String::new();
    let mut rest = xml;
    while let Some((before, behind)) = rest.split_once("time=\"") {
        let (time, behind) = behind.split_once('"').unwrap();
        assert!(time.parse::<f64>().is_ok(), "{time}");
        calm += before;
        calm += "time=\"TIME\"";
        rest = behind;
    }
    let calm = calm + rest;
    calm.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn how_each_task_ended_is_in_the_file_of_cases() {
    let scene = scene();
    // What is written is no text.
    let answer = scene.call(&["run", "--junit", "cases.xml", "--show", "none"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    golden("golden/cases.xml", &calm_cases(&scene.read("cases.xml")));
    // The next run replaces it, and leaves nothing beside it.
    scene.call(&["run", "--junit", "cases.xml", "--only", "good"]);
    assert_eq!(scene.read("cases.xml").matches("<testcase").count(), 1);
    assert!(!scene.files().iter().any(|file| file.extension().is_some_and(|end| end == "part")));
}

/// The binary as it runs where no file may grow beyond 4 to 8 MiB, which is an error like a full disk.
fn call_with_small_files(scene: &Scene, arguments: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let binary = scene.command("", arguments);
    let mut command = std::process::Command::new("sh");
    let line = "trap '' XFSZ; ulimit -f 8192; exec \"$0\" \"$@\"";
    command.args(["-c", line]).arg(binary.get_program()).args(binary.get_args());
    for (name, value) in binary.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.current_dir(scene.path()).output().unwrap();
    (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
}

/// What commands wrote was shown from their logs, and so lost without a word when these could not be
/// written.
#[test]
fn stdout_has_every_byte_whatever_becomes_of_the_log() {
    let numbers: String = (1..=1_300_000).map(|number| format!("{number}\n")).collect();
    let write = "seq 1300000";
    for show in ["grouped", "streamed", "prefixed", "failed"] {
        let scene = Scene::with(&format!("[tasks.a]\nrun = \"{write}; exit 1\"\n"));
        let scene = scene.file(".tidegate/.gitignore", "*\n");
        let right = match show {
            "prefixed" => numbers.lines().map(|line| format!("a | {line}\n")).collect(),
            _ => numbers.clone(),
        };
        let check = |(code, out, said): (Option<i32>, Vec<u8>, String)| {
            assert_eq!(code, Some(1), "{said}");
            assert_eq!(out.len(), right.len(), "{show}: {said}");
            assert!(out == right.as_bytes(), "{show}");
            let told = said.lines().filter(|line| line.contains("cannot write the log "));
            let told: Vec<_> = told.collect();
            assert!(told.len() == 1 && told[0].contains("File too large"), "{show}: {said}");
        };
        check(call_with_small_files(&scene, &["run", "--show", show]));
        let line = format!("{write}; false");
        let words = ["each", "--show", show, "--shell", &line, ":::", "a"];
        check(call_with_small_files(&scene, &words));
    }
}

#[tokio::test]
async fn stdout_has_what_is_in_a_log_that_was_removed() {
    for show in ["grouped", "streamed", "prefixed"] {
        let scene = Scene::new().file(".tidegate/.gitignore", "*\n");
        let line = "echo first; while [ ! -e end ]; do sleep 0.01; done; echo second; : {}";
        let running = scene.begin(&["each", "--show", show, "--shell", line, ":::", "a"]);
        let logs = || {
            scene.files().into_iter().filter(|path| path.extension().is_some_and(|it| it == "log"))
        };
        let has_first =
            || logs().any(|log| std::fs::read(log).is_ok_and(|text| text == b"first\n"));
        until("the first is in the log", has_first).await;
        std::fs::remove_dir_all(scene.path().join(".tidegate/store.db-logs")).unwrap();
        scene.touch("end");
        let answer = running.end();
        let prefix = if show == "prefixed" { "a | " } else { "" };
        let right = format!("{prefix}first\n{prefix}second\n");
        assert_eq!(answer.out, right, "{show}: {}", answer.err);
        assert!(
            answer.err.contains(" was moved or removed while it was written"),
            "{}",
            answer.err
        );
        assert_eq!(answer.code, Some(0), "{}", answer.err);
    }
}

/// The names of all elements in order, if each that is opened is closed in its place.
fn elements(xml: &str) -> Vec<&str> {
    let (mut names, mut open) = (Vec::new(), Vec::new());
    let (declaration, mut rest) = xml.split_once("?>").unwrap();
    assert!(declaration.starts_with("<?xml "), "{xml}");
    while let Some((text, behind)) = rest.split_once('<') {
        assert!(!text.contains('>'), "{text} in {xml}");
        let (tag, behind) = behind.split_once('>').unwrap();
        // An attribute that is not closed would have taken the next tag in.
        assert!(tag.matches('"').count().is_multiple_of(2) && !tag.contains('<'), "{tag} in {xml}");
        match (tag.strip_prefix('/'), tag.split([' ', '/']).next().unwrap()) {
            (Some(name), _) => assert_eq!(open.pop(), Some(name), "{xml}"),
            (None, name) => {
                names.push(name);
                open.extend((!tag.ends_with('/')).then_some(name));
            }
        }
        rest = behind;
    }
    assert_eq!((open, rest.trim()), (Vec::new(), ""), "{xml}");
    names
}

/// The head was padded by characters over room that was counted in bytes, and so written over cases.
#[test]
fn the_file_of_cases_is_whole_whatever_the_run_is_called() {
    let long = "ü".repeat(300);
    for name in ["日本語", "ночная сборка", "Nächtliche Läufe für Köln öö", &long, "größe", "a<&>"]
    {
        let scene = Scene::with(&format!(
            "[run]\nname = \"{name}\"\non_failure = \"keep_going\"\nparallel_limit = 1\n\
             [tasks.a]\nrun = \"exit 1\"\n[tasks.b]\nrun = \"echo b\"\n"
        ));
        assert_eq!(scene.call(&["run", "--junit", "cases.xml"]).code, Some(1));
        let xml = scene.read("cases.xml");
        let right = ["testsuites", "testsuite", "testcase", "failure", "testcase"];
        assert_eq!(elements(&xml), right, "{xml}");
        assert!(xml.contains(" tests=\"2\" failures=\"1\" skipped=\"0\" "), "{xml}");
        let escaped = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        assert!(xml.contains(&format!("<testsuite name=\"{escaped}\" ")), "{xml}");
    }
}

#[tokio::test]
async fn the_file_of_cases_is_written_also_when_the_run_is_interrupted() {
    let scene = Scene::with(
        "[tasks.a]\nrun = \"true\"\n[tasks.b]\nafter = [\"a\"]\nrun = \"touch begun; exec sleep 3600\"\n",
    );
    let running = scene.begin(&["run", "--junit", "cases.xml"]);
    until("it has begun", || scene.has("begun")).await;
    running.signal("INT");
    assert_eq!(running.end().code, Some(130));
    let xml = scene.read("cases.xml");
    assert!(xml.contains("tests=\"2\" failures=\"0\" skipped=\"1\""), "{xml}");
    assert!(xml.contains("<skipped message=\"not finished\"/>"), "{xml}");
}

#[test]
fn a_file_of_cases_that_cannot_be_is_refused_before_anything_runs() {
    let scene = Scene::with("[tasks.a]\nrun = \"touch a\"\n").file("folder/x", "");
    let before = scene.files();
    for (path, what) in [
        ("none/cases.xml", "--junit none/cases.xml: there is no folder none; make it first"),
        ("folder", "--junit folder: that is something else than a file"),
    ] {
        let said = scene.call(&["run", "--junit", path]).wrong();
        assert_eq!(said, format!("tidegate: {what}\n"));
    }
    assert_eq!(scene.files(), before);
}

#[test]
fn lines_are_shown_behind_the_name_of_their_task_and_keep_their_bytes() {
    let scene = Scene::with(
        "[tasks.a]\nrun = \"printf 'a\\\\377\\\\n\\\\n\\\\0b'\"\n\
         [tasks.b]\nafter = [\"a\"]\nrun = \"echo b >&2; exit 1\"\nretries = 1\nbackoff = \"1ms\"\n",
    );
    let shown = |color| {
        scene.command("", &["run", "--show", "prefixed", "--color", color]).output().unwrap().stdout
    };
    assert_eq!(shown("auto"), b"a | a\xff\na | \na | \0b\nb | b\nb | b\n");
    let coloured = String::from_utf8_lossy(&shown("always")).into_owned();
    assert!(coloured.starts_with("\x1b[") && coloured.contains("ma |\x1b[0m \0b\n"), "{coloured}");
}

#[tokio::test]
async fn what_a_command_writes_is_streamed_while_it_runs() {
    let scene = Scene::with(
        "[tasks.a]\nrun = \"printf 'first\\\\377'; while [ ! -e seen ]; do sleep 0.01; done; printf last\"\n",
    );
    for (how, first, all) in [
        ("streamed", &b"first\xff"[..], &b"first\xfflast"[..]),
        ("prefixed", b"", b"a | first\xfflast\n"),
    ] {
        let _ = std::fs::remove_file(scene.path().join("seen"));
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = scene.command("", &["run", "--show", how]);
        let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        let mut seen = vec![0; first.len()];
        // It is there while the command waits for us to have seen it.
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(seen, first);
        scene.touch("seen");
        reader.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, all);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn lines_of_several_are_never_mixed_up() {
    let line = "x".repeat(50);
    let tasks: String = (0..4)
        .map(|number| {
            format!("[tasks.t{number}]\nrun = \"for i in $(seq 200); do printf '{line}'; printf '{line}\\\\n'; done\"\n")
        })
        .collect();
    let scene = Scene::with(&tasks);
    let out = scene.call(&["run", "--show", "prefixed", "--progress", "none"]).out;
    assert_eq!(out.lines().count(), 800);
    for number in 0..4 {
        let whole = format!("t{number} | {line}{line}");
        assert_eq!(out.lines().filter(|&line| line == whole).count(), 200);
    }
}

#[tokio::test]
async fn a_reader_who_does_not_read_holds_up_no_task() {
    let items: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let scene = Scene::with(
        "[tasks.each]\neach = { lines = \"list\" }\nrun = \"true\"\n\
         [tasks.last]\nafter = [\"each\"]\nrun = \"touch last\"\n",
    )
    .file("list", items.join("\n"));
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // As much as it holds.
    let full = vec![b'x'; 64 << 10];
    writer.write_all(&full).unwrap();
    let mut command = scene.command("", &["run"]);
    let mut child = command.stderr(writer).spawn().unwrap();
    drop(command);
    until("all has run", || scene.has("last")).await;
    assert!(child.try_wait().unwrap().is_none(), "it has yet to say so");
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    let said = String::from_utf8(said.split_off(full.len())).unwrap();
    assert!(said.contains("2 of 2 tasks succeeded") && said.contains("each[49]: succ"), "{said}");
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn whoever_does_not_read_keeps_nobody_from_going() {
    let scene = Scene::with("[tasks.a]\nrun = \"touch a\"\n");
    let (_reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b'x'; 64 << 10]).unwrap();
    let mut command = scene.command("", &["run"]);
    let mut child = command.stderr(writer).spawn().unwrap();
    until("it has run", || scene.has("a")).await;
    let process = child.id();
    until("it goes when told", || {
        signal("TERM", process);
        child.try_wait().unwrap().is_some()
    })
    .await;
}

#[test]
fn every_event_and_field_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    let page = fs::read_to_string(page).unwrap();
    let events =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/events.jsonl"));
    for line in events.unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let kind = event["event"].as_str().unwrap();
        let (_, about) = page.split_once(&format!("\n| `{kind}` | ")).expect(kind);
        let about = about.lines().next().unwrap();
        for field in event.as_object().unwrap().keys() {
            let common = ["version", "event", "at", "run"].contains(&field.as_str());
            let shown = format!("`{field}`");
            assert!(common || about.contains(&shown), "{field} of {kind} is not in: {about}");
        }
    }
}

#[test]
fn items_that_were_done_before_are_told_when_a_run_goes_on() {
    let scene = Scene::with(
        "[tasks.each]\neach = { items = [1, 2, 3] }\nrun = \"test {} != 3 || test -e ok\"\n",
    );
    assert_eq!(scene.call(&["run", "-j1"]).code, Some(1));
    scene.touch("ok");
    let answer = scene.call(&["run", "--resume", "--format", "json"]);
    let events = events(&answer.out);
    let items = events.iter().find(|event| event["event"] == "task_items").unwrap();
    assert_eq!((&items["count"], &items["taken_over"]), (&json!(3), &json!(2)));
    let last = events.last().unwrap();
    assert_eq!((&last["total"], &last["succeeded"]), (&json!(3), &json!(3)));
}

#[test]
fn no_case_is_missing_also_when_more_happens_at_once_than_can_be_told() {
    let items: Vec<String> = (0..3_000).map(|number| number.to_string()).collect();
    let scene = Scene::with("[tasks.each]\neach = { lines = \"list\" }\nrun = \"exit 1\"\n")
        .file("list", items.join("\n"));
    let answer = scene.call(&["run", "-j1", "--junit", "cases.xml", "--format", "json"]);
    assert_eq!(answer.code, Some(1));
    let xml = scene.read("cases.xml");
    assert!(xml.contains("tests=\"3000\" failures=\"1\" skipped=\"2999\""), "{}", &xml[..400]);
    let ends = events(&answer.out).into_iter().filter(|event| event["event"] == "task_ended");
    // The task itself ends too.
    assert_eq!(ends.count(), 3_001);
}
