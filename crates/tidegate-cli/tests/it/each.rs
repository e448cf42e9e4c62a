//! One command over many inputs: what commands are given, what is shown, failures, going on, and how far
//! is read ahead.

use crate::running::{LONG, Running, calm, until};
use crate::support::{Answer, Scene, golden};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::Engine;
use tidegate::engine::RunsPage;

/// A folder with a store of its own.
fn scene() -> Scene {
    Scene::new().file(".tidegate/.gitignore", "*\n")
}

/// What comes of these inputs on stdin, byte for byte.
fn call(
    scene: &Scene,
    arguments: &[&str],
    input: impl AsRef<[u8]>,
) -> (Option<i32>, Vec<u8>, String) {
    let mut command = scene.command("", arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Nobody may want to read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    let output = child.wait_with_output().unwrap();
    let said = scene.neutral(&String::from_utf8(output.stderr).unwrap());
    (output.status.code(), output.stdout, said)
}

/// What was shown of these inputs, if all was well.
fn shown(scene: &Scene, arguments: &[&str], input: impl AsRef<[u8]>) -> Vec<u8> {
    let (code, out, said) = call(scene, arguments, input);
    assert_eq!(code, Some(0), "{said}");
    out
}

/// The binary left running, with its stdin.
fn begin<'s>(scene: &'s Scene, arguments: &[&str]) -> (Running<'s>, ChildStdin) {
    let mut command = scene.command("", arguments);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdin(reader).stderr(Stdio::piped());
    let running = scene.begin_with(&mut command);
    (running, std::os::fd::OwnedFd::from(writer).into())
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

fn failed(answer: &Answer) {
    assert_eq!(answer.code, Some(1), "{}", answer.err);
}

#[test]
fn a_command_is_run_for_each_input_behind_the_marks() {
    let answer = scene().call(&["each", "-j1", "echo", "x", ":::", "a", "b c", ""]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), "x a\nx b c\nx \n"));
    assert_eq!(calm(&answer.err), "3 of 3 inputs succeeded in TIME\n");
}

#[test]
fn options_behind_the_command_are_its_own() {
    let answer = scene().call(&["each", "-j2", "printf", "%s-%s.", "-n", ":::", "-j9", "--help"]);
    let out = answer.succeeded();
    assert!(["-n--j9.-n---help.", "-n---help.-n--j9."].contains(&out.as_str()), "{out}");
}

#[test]
fn lines_are_inputs_as_they_are_and_empty_ones_are_none() {
    let input = "a\n\n b \r\nc";
    assert_eq!(shown(&scene(), &["each", "-j1", "printf", "[%s]"], input), b"[a][ b \r][c]");
    let scene = scene().file("list", input);
    assert_eq!(
        shown(&scene, &["each", "-j1", "-a", "list", "printf", "[%s]"], ""),
        b"[a][ b \r][c]"
    );
    assert_eq!(shown(&scene, &["each", "-j1", "-a", "-", "printf", "[%s]"], "x"), b"[x]");
}

#[test]
fn inputs_that_end_with_a_nul_may_be_anything() {
    let input = b"a\nb\0\0\xffc";
    let right = b"[a\nb][][\xffc]";
    assert_eq!(shown(&scene(), &["each", "-j1", "-0", "printf", "[%s]"], input), right);
}

#[test]
fn an_input_that_is_not_text_arrives_byte_for_byte_everywhere() {
    let line = r#"printf '%s|%s|' {} "$TIDEGATE_INPUT""#;
    let right = b"\xff\xfe x|\xff\xfe x|";
    assert_eq!(shown(&scene(), &["each", "--shell", line], b"\xff\xfe x\n"), right);
    let words = ["each", "sh", "-c", r#"printf '%s|%s|' "$1" "$TIDEGATE_INPUT""#, "sh"];
    assert_eq!(shown(&scene(), &words, b"\xff\xfe x\n"), right);
}

#[test]
fn placeholders_stand_for_parts_of_an_input() {
    let words = ["each", "-j1", "echo", "{#}", "{}", "{/}", "{//}", "{.}", "{/.}", "<{/}>"];
    let answer = scene().call(&[&words[..], &[":::", "d/a.tar.gz", "b"]].concat());
    let right = "1 d/a.tar.gz a.tar.gz d d/a.tar a.tar <a.tar.gz>\n2 b b . b b <b>\n";
    assert_eq!(answer.succeeded(), right);
}

#[test]
fn a_line_for_the_shell_has_its_inputs_quoted() {
    let input = "it's $HOME; `x`\n";
    let line = r#"echo {} | cat; echo "<{}>""#;
    let right = "it's $HOME; `x`\n<it's $HOME; `x`>\n";
    assert_eq!(shown(&scene(), &["each", "--shell", line], input), right.as_bytes());
    // It ends at the first command that fails.
    let answer = scene().call(&["each", "--shell", "false; touch {}", ":::", "x"]);
    failed(&answer);
}

/// An apostrophe in a comment was taken for a quote, and the input stood in the line as it was.
#[test]
fn input_is_data_behind_a_comment_and_anywhere_else() {
    let scene = scene();
    let line = "# it's a comment\necho {} '{}' \"{}\"; f() { echo {/}; }; set -- b; f c";
    let answer = scene.call(&["each", "--shell", line, ":::", "x; touch pwned"]);
    let input = "x; touch pwned";
    assert_eq!(answer.succeeded(), format!("{input} {input} {input}\n{input}\n"));
    assert!(!scene.has("pwned"));
    // The inputs are also the parameters of the line.
    let line = "echo \"$#\" \"$1\" \"$TIDEGATE_INPUT_STEM\" {#}";
    let answer = scene.call(&["each", "-n2", "--shell", line, ":::", "d/a.b", "c.d"]);
    assert_eq!(answer.succeeded(), "2 d/a.b a\nc 1\n");
}

#[test]
fn line_in_which_an_input_would_not_be_data_is_refused_with_its_place() {
    let scene = scene();
    let refused = |line: &str| scene.call(&["each", "--shell", line, ":::", "a"]).wrong();
    assert_eq!(
        refused("cat <<E\n{}\nE"),
        "--shell:2:1: cannot keep {} apart from the line: it stands behind << of a here-document; \
         write \"$TIDEGATE_INPUT\" in its place, or put the line into a script that is given {}\n    \
         2 | {}\n      | ^^\n"
    );
    assert!(refused("é \"$(cat '{/}')\"").starts_with("--shell:1:11: cannot keep {/} apart"));
    assert!(refused("echo a;").starts_with("--shell:1:8: cannot put the input behind the line"));
    assert_eq!(scene.files().len(), 2);
}

#[test]
fn several_inputs_go_to_one_command() {
    let words = ["each", "-j1", "-n2", "echo", "-"];
    assert_eq!(shown(&scene(), &words, "a\nb\nc\n"), b"- a b\n- c\n");
    let words = ["each", "-j1", "-n2", "echo", "{#}", "x{}y"];
    assert_eq!(shown(&scene(), &words, "a\nb\nc\n"), b"1 xay xby\n2 xcy\n");
    // Not more than the system takes.
    let long = format!("{}\n", "x".repeat(100_000)).repeat(3);
    let out = shown(&scene(), &["each", "-j1", "-n9", "--shell", "set -- {}; echo $#"], long);
    assert_eq!(out, b"1\n1\n1\n");
}

#[test]
fn what_a_command_writes_is_shown_byte_for_byte_when_it_ends() {
    let line = r"head -c 300000 /dev/zero; printf '\377' >&2";
    let out = shown(&scene(), &["each", "-j2", "--shell", line], "a\nb\n");
    assert_eq!(out.len(), 600_002);
    assert_eq!(out.iter().position(|byte| *byte == 0xff), Some(300_000));
    let (_, out, _) = call(&scene(), &["each", "--show", "none", "echo"], "a\n");
    assert_eq!(out, b"");
    let line = "echo {}; test {} = b";
    let words = ["each", "-j1", "--show", "failed", "--keep-going", "--shell", line];
    let (_, out, _) = call(&scene(), &words, "a\nb\n");
    assert_eq!(out, b"a\n");
}

#[test]
fn what_happens_is_told_to_programs() {
    let scene = scene();
    let line = "echo {}; test {} = a";
    let words = ["each", "-j1", "--format", "json", "--junit", "ends.xml", "--shell", line];
    let (code, out, said) = call(&scene, &words, "a\nb\nc\n");
    assert_eq!((code, said.as_str()), (Some(1), ""));
    let events: Vec<Value> = out
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let ends = events.iter().filter(|event| event["event"] == "task_ended");
    let ends: Vec<_> = ends.map(|event| (event["task"].clone(), event["input"].clone())).collect();
    assert_eq!(ends, [(json!("echo[1]"), json!("a")), (json!("echo[2]"), json!("b"))]);
    let last = events.last().unwrap();
    let counts = ["total", "succeeded", "failed", "cancelled"].map(|name| last[name].clone());
    assert_eq!(
        (counts, &last["outcome"]),
        ([json!(3), json!(1), json!(1), json!(1)], &json!("failed"))
    );
    let cases = scene.read("ends.xml");
    assert_eq!(cases.matches("<testcase").count(), 2, "{cases}");
}

#[test]
fn lines_appear_behind_their_inputs_as_they_come() {
    let words = ["each", "-j1", "--show", "prefixed", "echo", "x"];
    assert_eq!(shown(&scene(), &words, "a\nb\n"), b"a | x a\nb | x b\n");
}

#[test]
fn after_the_first_failure_nothing_new_begins() {
    let line = "echo {} >> begun; echo why {} >&2; test {} != 2";
    let scene = scene();
    let (code, out, said) = call(&scene, &["each", "-j1", "--shell", line], "1\n2\n3\n4\n");
    assert_eq!((code, out.as_slice()), (Some(1), &b"why 1\nwhy 2\n"[..]), "{said}");
    assert_eq!(scene.read("begun"), "1\n2\n");
    golden("golden/each-failed.txt", &calm(&said));
}

/// Inputs this long are begun in runs of their own, of which none knows the other.
#[test]
fn after_a_failure_nothing_begins_in_another_run_either() {
    let input = format!("{}\n", "x".repeat(100_000)).repeat(20);
    for _ in 0..5 {
        let scene = scene();
        let line = "echo $TIDEGATE_RUN_ID >> begun; exit 1";
        let (code, _, said) = call(&scene, &["each", "-j1", "sh", "-c", line, "sh"], &input);
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(lines(&scene.read("begun")).len(), 1, "{said}");
    }
}

#[test]
fn what_runs_beside_a_failure_may_end() {
    let scene = scene();
    let line = "case {} in a) while [ ! -e failed ]; do sleep 0.01; done; sleep 0.05; echo a >> done;; \
                b) touch failed; exit 3;; *) echo {} >> done;; esac";
    failed(&scene.call(&["each", "-j2", "--shell", line, ":::", "a", "b", "c", "d"]));
    assert_eq!(scene.read("done"), "a\n");
}

#[test]
fn by_keeping_going_every_input_is_run() {
    let scene = scene();
    let line = "echo {} >> begun; test {} != 2 -a {} != 4";
    let words = ["each", "-j1", "--keep-going", "--shell", line];
    let (code, _, said) = call(&scene, &words, "1\n2\n3\n4\n5\n");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(scene.read("begun"), "1\n2\n3\n4\n5\n");
    assert!(said.contains("3 of 5 inputs succeeded in "), "{said}");
    let failures = said.lines().filter(|line| line.starts_with("failed: ")).count();
    assert_eq!(failures, 2, "{said}");
}

#[test]
fn of_many_failures_the_first_are_told() {
    let input: String = (1..=25).map(|number| format!("{number}\n")).collect();
    let (code, _, said) = call(&scene(), &["each", "-j1", "--keep-going", "false"], input);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("failed: 10: exit code 1\n") && said.contains("failed: 15 more\n"),
        "{said}"
    );
    assert!(!said.contains("\nfailed: 11: "), "{said}");
}

#[test]
fn so_many_failures_are_borne_and_no_more() {
    let scene = scene();
    let words = ["each", "-j1", "--max-fail", "2", "--shell", "echo {} >> begun; test {} = 2"];
    let (code, _, said) = call(&scene, &words, "1\n2\n3\n4\n5\n");
    assert_eq!((code, scene.read("begun").as_str()), (Some(1), "1\n2\n3\n"), "{said}");
}

#[test]
fn only_the_last_attempt_is_a_failure() {
    let scene = scene();
    let line = "echo {} >> begun; test $TIDEGATE_ATTEMPT = 2 -o {} = b";
    let words = ["each", "-j1", "--retries", "1", "--shell", line];
    let (code, _, said) = call(&scene, &words, "a\nb\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("a: failed: exit code 1 (attempt 1 of 2, again in about 1.0s)"),
        "{said}"
    );
    assert_eq!(scene.read("begun").lines().filter(|line| *line == "a").count(), 2);
}

#[test]
fn a_time_out_ends_the_command_and_is_a_failure() {
    let scene = scene();
    let answer = scene.call(&["each", "--timeout", "300ms", "--shell", LONG, ":::", "a"]);
    failed(&answer);
    assert!(answer.err.contains("a: failed: timed out after 300ms"), "{}", answer.err);
    assert!(scene.is_gone());
    assert!(!answer.err.contains("log:"), "it wrote nothing: {}", answer.err);
}

#[test]
fn what_has_succeeded_is_not_run_again() {
    let scene = scene();
    let words = |more: &[&'static str]| {
        let line = "echo {} >> begun; test {} != 2 -o -e mended";
        [&["each", "-j1"][..], more, &["--shell", line]].concat()
    };
    let (code, _, said) = call(&scene, &words(&["--keep-going"]), "1\n2\n3\n1\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.ends_with("go on with: tidegate each --resume -j1 --keep-going --shell 'echo {} >> begun; test {} != 2 -o -e mended'\n"), "{said}");
    // One more of the same, and another one, in another order.
    let (code, _, said) = call(&scene, &words(&["--resume", "--keep-going"]), "4\n3\n1\n1\n1\n2\n");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(scene.read("begun"), "1\n2\n3\n1\n4\n1\n2\n");
    assert!(said.contains("\nnot run again: 3 inputs\n2 of 3 inputs succeeded in "), "{said}");
    // Both runs count.
    scene.touch("mended");
    let (code, _, said) = call(&scene, &words(&["--resume"]), "1\n1\n1\n2\n3\n4\n");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(scene.read("begun"), "1\n2\n3\n1\n4\n1\n2\n2\n");
    let (code, _, said) = call(&scene, &words(&["--resume"]), "1\n1\n1\n2\n3\n4\n");
    assert_eq!(code, Some(0), "{said}");
    golden("golden/each-nothing-left.txt", &calm(&said));
}

#[test]
fn a_run_to_go_on_with_is_of_the_same_command_or_is_named() {
    let scene = scene();
    failed(&scene.call(&["each", "-j1", "--keep-going", "test", "a", "=", ":::", "a", "b"]));
    let answer = scene.call(&["each", "--resume", "echo", ":::", "a"]);
    failed(&answer);
    let right = "tidegate: there is no run of this command to go on with; leave --resume out\n";
    assert_eq!(answer.err, right);
    let answer = scene.call(&["each", "--resume=zzz", "echo", ":::", "a"]);
    failed(&answer);
    assert!(answer.err.contains("there is no run \"zzz\" to go on with"), "{}", answer.err);
    let answer = scene.call(&["each", "--resume=0", "echo", ":::", "a", "b"]);
    assert_eq!(answer.succeeded(), "b\n");
    let answer = scene.call(&["each", "--resume=0", "echo", ":::", "a", "b"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.err.contains("tidegate: --resume=0 may be run "), "{}", answer.err);
    let answer = scene.call(&["each", "--store", "memory:", "--resume", "echo", ":::", "a"]);
    assert!(answer.wrong().contains("--resume needs a store that outlives the process"));
}

#[tokio::test]
async fn killed_in_the_middle_it_goes_on_and_no_command_has_a_twin() {
    let line = format!("if [ {{}} = 2 ]; then {LONG}; fi; echo {{}} >> done");
    let scene = scene();
    let words = ["each", "-j1", "--shell", &line, ":::", "1", "2", "3"];
    let running = scene.begin(&words);
    scene.begun(1).await;
    // While it lives nobody goes on with it.
    let process = running.id();
    let resumed = [&["each", "--resume"][..], &words[1..]].concat();
    let answer = scene.call(&resumed);
    failed(&answer);
    assert!(
        answer.err.contains(&format!(" is still going on in process {process}; stop that first")),
        "{}",
        answer.err
    );
    running.kill();
    scene.touch("enough");
    let answer = scene.call(&resumed);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "1\n2\n3\n");
    assert_eq!(scene.read("twins"), "");
    assert!(
        answer.err.contains("\nnot run again: 1 input\n2 of 2 inputs succeeded"),
        "{}",
        answer.err
    );
}

/// An end was told when it was heard of, which is before its commit: a process that was killed in between
/// ran again what it had told to have succeeded.
#[tokio::test]
async fn end_is_told_when_it_is_stored_and_not_before() {
    let scene = scene();
    let line = "touch begun-{}; while [ ! -e end-{} ]; do sleep 0.01; done";
    let words = ["each", "-j1", "--format", "json", "--shell", line, ":::", "a", "b"];
    let out = std::fs::File::create(scene.path().join("events")).unwrap();
    let running = scene.begin_to(scene.command("", &words).stderr(Stdio::null()), out);
    let told = |event: &str, input: &str| {
        let events = scene.read("events");
        let mut events = events.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        events.any(|line| {
            let told: Value = serde_json::from_str(line).unwrap();
            told["event"] == event && told["input"] == input
        })
    };
    until("the first has begun", || scene.has("begun-a")).await;
    // Beside the one that begins runs, both are this process's: the second can begin without the store.
    let store = scene.path().join(".tidegate/store.db");
    let engine = Engine::builder(format!("sqlite:{}", store.display())).connect().await.unwrap();
    while engine.store().counts().await.unwrap().running < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    engine.shutdown_now().await;
    let lock = rusqlite::Connection::open(&store).unwrap();
    lock.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.touch("end-a");
    // The second begins on the slot of the first, of whose end the process has heard by then.
    until("the second has begun", || told("task_started", "b")).await;
    assert!(!told("task_ended", "a"), "{}", scene.read("events"));
    lock.execute_batch("ROLLBACK").unwrap();
    until("the end of the first is told", || told("task_ended", "a")).await;
    scene.touch("end-b");
    assert_eq!(running.code(), Some(0));
    assert!(told("task_ended", "b"));
}

#[tokio::test]
async fn an_interrupt_ends_commands_and_it_can_go_on() {
    let scene = scene();
    let line = format!("{LONG}; : {{}}");
    let words = ["each", "-j1", "--shell", &line, ":::", "a", "b"];
    let running = scene.begin(&words);
    scene.begun(1).await;
    running.signal("INT");
    let answer = running.end();
    assert_eq!(answer.code, Some(130), "{}", answer.err);
    assert!(scene.is_gone());
    assert!(answer.err.contains("a: interrupted\nnot finished: 2 inputs\n"), "{}", answer.err);
    scene.touch("enough");
    let answer = scene.call(&[&["each", "--resume"][..], &words[1..]].concat());
    assert_eq!(answer.code, Some(0), "{}", answer.err);
}

#[tokio::test]
async fn told_to_end_it_lets_commands_end_and_begins_nothing_new() {
    let scene = scene();
    let line = format!("{LONG}; echo {{}} >> done");
    let running = scene.begin_aloud(&["each", "-j1", "--shell", &line, ":::", "a", "b"]);
    scene.begun(1).await;
    running.signal("TERM");
    scene.said("stopping: ").await;
    assert!(!scene.is_gone());
    scene.touch("enough");
    assert_eq!(running.exit_code().await, Some(143), "{}", scene.read("said"));
    assert_eq!(scene.read("done"), "a\n");
}

#[tokio::test]
async fn cancelling_the_run_reaches_its_commands() {
    let scene = scene();
    let running = scene.begin(&["each", "-j1", "--shell", LONG, ":::", "a", "b"]);
    scene.begun(1).await;
    let store = scene.path().join(".tidegate/store.db");
    let engine = Engine::builder(format!("sqlite:{}", store.display())).connect().await.unwrap();
    let runs = engine.runs(RunsPage::default()).await.unwrap();
    let heads: Vec<_> = runs.iter().filter(|run| run.parent.is_none()).collect();
    // People see one, by the name of what it runs.
    assert_eq!((heads.len(), heads[0].plan.workflow()), (1, "exec"));
    assert!(engine.run(heads[0].id).await.unwrap().cancel().await.unwrap());
    let answer = running.end();
    assert_eq!(answer.code, Some(3), "{}", answer.err);
    assert!(scene.is_gone());
    assert!(answer.err.contains("a: interrupted\ncancelled: 2 inputs\n"), "{}", answer.err);
}

#[tokio::test]
async fn each_input_of_a_trickle_is_run_as_it_comes() {
    let scene = scene();
    let (running, mut input) = begin(&scene, &["each", "-j1", "--shell", "echo {} >> done"]);
    for number in 1..=3 {
        writeln!(input, "{number}").unwrap();
        until("it is run", || scene.read("done").lines().count() == number).await;
    }
    drop(input);
    let answer = running.end();
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "1\n2\n3\n");
}

#[tokio::test]
async fn a_trickle_is_read_on_while_a_command_takes_long() {
    let scene = scene();
    let line = format!("if [ {{}} = 1 ]; then {LONG}; fi; echo {{}} >> done");
    let (running, mut input) = begin(&scene, &["each", "-j2", "--shell", &line]);
    for number in 1..=3 {
        writeln!(input, "{number}").unwrap();
        until("the others are run", || scene.read("done").lines().count() + 1 == number).await;
    }
    scene.touch("enough");
    drop(input);
    assert_eq!(running.end().code, Some(0));
}

#[tokio::test]
async fn inputs_are_read_so_far_ahead_and_no_further() {
    let scene = scene();
    let (running, mut input) = begin(
        &scene,
        &["each", "-j2", "--shell", &format!("if [ {{#}} = 1 ]; then {LONG}; else sleep 3600; fi")],
    );
    let written = Arc::new(AtomicU64::new(0));
    let counts = written.clone();
    let writer = std::thread::spawn(move || {
        let line = format!("{}\n", "x".repeat(99));
        // Until nobody reads any more.
        while input.write_all(line.as_bytes()).is_ok() {
            counts.fetch_add(1, Ordering::Relaxed);
        }
    });
    // It begins before the input ends, which it never does.
    scene.begun(1).await;
    until("ten thousand are read", || written.load(Ordering::Relaxed) >= 10_000).await;
    let mut last = (0, 0);
    until("it reads no further", || {
        let now = written.load(Ordering::Relaxed);
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        last.1 > 200
    })
    .await;
    // What is in the pipe, and read with the last of them, is more than the ten thousand.
    assert!(last.0 < 10_000 + 2_000, "{} were read", last.0);
    running.signal("INT");
    assert_eq!(running.end().code, Some(130));
    writer.join().unwrap();
}

#[test]
fn many_inputs_are_all_run_once() {
    let scene = scene();
    let input: String = (1..=2_500).map(|number| format!("{number}\n")).collect();
    let out = shown(&scene, &["each", "-j4", "-n10", "echo"], &input);
    let mut numbers: Vec<u32> =
        String::from_utf8(out).unwrap().split_whitespace().map(|it| it.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=2_500).collect::<Vec<_>>());
}

#[test]
fn two_at_once_share_a_store_and_nothing_else() {
    let scene = scene();
    let line = "echo $TIDEGATE_STORE {} >> $0; while [ ! -e both ]; do sleep 0.01; \
                if [ -e a -a -e b ]; then touch both; fi; done";
    let words = |file| ["each", "-j1", "sh", "-c", line, file, ":::", "1", "2"].map(str::to_owned);
    let [one, two] = ["a", "b"].map(|file| {
        let words = words(file);
        scene.begin(&words.iter().map(String::as_str).collect::<Vec<_>>())
    });
    assert_eq!(one.end().code, Some(0));
    assert_eq!(two.end().code, Some(0));
    let store = format!("sqlite:{}/.tidegate/store.db", scene.path().display());
    for file in ["a", "b"] {
        assert_eq!(scene.read(file), format!("{store} 1\n{store} 2\n"));
    }
}

#[tokio::test]
async fn within_a_task_of_a_file_it_uses_the_same_store() {
    let binary = env!("CARGO_BIN_EXE_tidegate");
    let scene =
        Scene::with(&format!("[tasks.all]\nrun = \"'{binary}' each -j1 echo x ::: a b\"\n"));
    let out = scene.call(&["run", "-j1"]).succeeded();
    assert!(out.starts_with("x a\nx b\n2 of 2 inputs succeeded in "), "{out}");
    let store = scene.path().join(".tidegate/store.db");
    let engine = Engine::builder(format!("sqlite:{}", store.display())).connect().await.unwrap();
    let runs = engine.runs(RunsPage::default()).await.unwrap();
    let heads = runs.iter().filter(|run| run.parent.is_none()).map(|run| run.plan.workflow());
    assert_eq!(heads.filter(|name| *name == "echo").count(), 1);
}

#[tokio::test]
async fn nothing_begins_before_what_is_waited_for() {
    let scene = scene();
    let words = ["each", "--wait-for", "file:go", "--wait-for", "delay:1ms", "touch", ":::", "x"];
    let mut command = scene.command("", &words);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let running = scene.begin_with(command.stderr(writer));
    drop(command);
    let mut said = [0; 28];
    reader.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"touch: waits for go and 1ms\n");
    assert!(!scene.has("x"));
    scene.touch("go");
    until("it is run", || scene.has("x")).await;
    drop(running);
}

#[test]
fn without_inputs_nothing_is_run() {
    let scene = scene();
    let (code, out, said) = call(&scene, &["each", "echo"], "\n\n");
    assert_eq!((code, out.as_slice()), (Some(0), &b""[..]));
    assert_eq!(said, "there was no input, and so nothing was run\n");
}

#[test]
fn whoever_reads_no_further_has_what_they_wanted() {
    let scene = scene();
    let mut command = scene.command("", &["each", "-j1", "echo", ":::", "a", "b"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(output.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn in_memory_nothing_is_left_and_going_on_is_not_offered() {
    let scene = Scene::new();
    let answer = scene.call(&["each", "--store", "memory:", "-j1", "false", ":::", "a"]);
    failed(&answer);
    assert!(!answer.err.contains("go on with") && !answer.err.contains("log:"), "{}", answer.err);
    assert!(scene.files().is_empty());
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_begun() {
    let scene = scene();
    for (words, right) in [
        (&["each"][..], "COMMAND"),
        (&["each", ":::", "a"], "there is no command before :::"),
        (&["each", "echo", ":::"], "there is no input behind :::"),
        (&["each", "echo", ":::", "a", ":::", "b"], "::: is there twice"),
        (&["each", "-a", "x", "echo", ":::", "a"], "behind ::: and in the file of -a"),
        (&["each", "-a", "absent", "echo"], "cannot read absent: No such file"),
        (&["each", "-a", ".", "echo"], "cannot read .: it is a folder"),
        (&["each", "--shell", "echo", "x", ":::", "a"], "put it in quotes"),
        (&["each", "", ":::", "a"], "the command is empty"),
        (&["each", "-n", "0", "echo", ":::", "a"], "a whole number of at least 1"),
        (&["each", "-n", "-1", "echo", ":::", "a"], "a whole number of at least 1"),
        (&["each", "-j", "0", "echo", ":::", "a"], "a whole number of at least 1, \"auto\""),
        (&["each", "-j-1", "echo", ":::", "a"], "a whole number of at least 1, \"auto\""),
        (&["each", "-jabc", "echo", ":::", "a"], "a whole number of at least 1, \"auto\""),
        (&["each", "--max-fail", "0", "echo", ":::", "a"], "a whole number of at least 1"),
        (&["each", "--max-fail", "2", "--keep-going", "echo", ":::", "a"], "cannot be used with"),
        (&["each", "--timeout", "0", "echo", ":::", "a"], "a duration above 0"),
        (&["each", "--retries", "-1", "echo", ":::", "a"], "-1"),
        (&["each", "--wait-for", "x", "echo", ":::", "a"], "file:PATH, tcp:HOST:PORT"),
    ] {
        let said = scene.call(words).wrong();
        assert!(said.contains(right), "{words:?}: {said}");
    }
    let answer = scene.call(&["each", "no-such-program", ":::", "a"]);
    failed(&answer);
    assert!(answer.err.starts_with("tidegate: there is no program \"no-such-program\" in PATH (/"));
    let answer = scene.call(&["each", "./absent", ":::", "a"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), "tidegate: ./absent is not there\n"));
    let scene = scene.file("data", "");
    let answer = scene.call(&["each", "./data", ":::", "a"]);
    assert_eq!(answer.err, "tidegate: ./data cannot be executed\n");
    assert!(!scene.has(".tidegate/store.db"));
}

#[test]
fn an_input_that_no_command_can_be_given_is_told_and_ends_the_reading() {
    let (code, out, said) = call(&scene(), &["each", "-j1", "echo"], b"a\nb\0c\nd\n");
    assert_eq!((code, out.as_slice()), (Some(1), &b"a\n"[..]), "{said}");
    assert!(
        said.contains("tidegate: input 2 has a NUL in it, which no command can be given; -0 reads")
    );
    assert!(said.contains("1 of 1 input that were read succeeded"), "{said}");
    let long = [&b"a\n"[..], &[b'x'; 200_000], b"\n"].concat();
    let (code, out, said) = call(&scene(), &["each", "-j1", "echo"], long);
    assert_eq!((code, out.as_slice()), (Some(1), &b"a\n"[..]), "{said}");
    assert!(
        said.contains("tidegate: input 2 is longer than 131071 bytes, which no command"),
        "{said}"
    );
}

#[test]
fn a_terminal_is_not_waited_for() {
    let scene = scene();
    let binary = env!("CARGO_BIN_EXE_tidegate");
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &format!("'{binary}' each echo"), "/dev/null"]).current_dir(scene.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("tidegate: there are no inputs: give them behind :::"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_settings_of_the_environment_count_where_the_command_line_is_silent() {
    let scene = scene().variable("TIDEGATE_PARALLEL_LIMIT", "x");
    let said = scene.call(&["each", "echo", ":::", "a"]).wrong();
    assert!(said.contains("TIDEGATE_PARALLEL_LIMIT cannot be \"x\""), "{said}");
    assert_eq!(scene.call(&["each", "-j1", "echo", ":::", "a"]).succeeded(), "a\n");
    let scene = self::scene().variable("TIDEGATE_TASK_TIMEOUT", "100ms");
    failed(&scene.call(&["each", "sleep", ":::", "3600"]));
}

#[test]
fn logs_of_all_inputs_are_found_by_the_run() {
    let scene = Scene::new().file(".tidegate/.gitignore", "*");
    let words = ["each", "-j1", "-n1", "--keep-going", "sh", "-c", "echo for $0; test $0 != b"];
    let answer = scene.call(&[&words[..], &[":::", "a", "b", "c"]].concat());
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    let logs = scene.call(&["logs"]);
    assert_eq!((logs.code, logs.out.as_str()), (Some(0), "for a\nfor b\nfor c\n"), "{}", logs.err);
    let show = scene.call(&["show"]).good();
    assert!(show.contains("1 of 3 failed; b: exit code 1"), "{show}");
}
