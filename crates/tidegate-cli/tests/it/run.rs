//! Runs of real commands: order, failures, waits, items, limits, output and exit codes.

use crate::running::{LONG, calm};
use crate::support::{Scene, golden};
use std::fs;

/// A command file with these tasks.
fn scene(tasks: &str) -> Scene {
    Scene::with(&format!("[run]\nname = \"test\"\n{tasks}"))
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn tasks_run_in_order_and_no_arm_waits_for_the_other() {
    // The left arm ends only when the successor of the right one has run.
    let scene = scene(
        r#"
        [tasks.start]
        run = "echo start >> order"
        [tasks.left]
        run = "while [ ! -e further ]; do sleep 0.01; done; echo left >> order"
        after = ["start"]
        [tasks.right]
        run = "echo right >> order"
        after = ["start"]
        [tasks.further]
        run = "echo further >> order; touch further"
        after = ["right"]
        [tasks.end]
        run = "echo end >> order"
        after = ["left", "further"]
        "#,
    );
    scene.call(&["run"]).succeeded();
    assert_eq!(lines(&scene.read("order")), ["start", "right", "further", "left", "end"]);
}

#[test]
fn after_a_failure_nothing_new_starts() {
    let scene = scene(
        "[tasks.a]\nrun = \"echo why >&2; exit 3\"\n[tasks.b]\nrun = \"touch b\"\n\
         [tasks.c]\nrun = \"touch c\"\nafter = [\"a\"]\n[tasks.tidy]\nrun = \"touch tidy\"\nafter = [\"c\"]\nwhen = \"all_done\"\n",
    );
    let answer = scene.call(&["run", "-j1"]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(1), "why\n"));
    assert!(!scene.has("b") && !scene.has("c") && scene.has("tidy"));
    golden("golden/fail-fast.txt", &calm(&answer.err));
}

#[test]
fn by_keeping_going_all_that_does_not_depend_on_a_failure_is_run() {
    let scene = Scene::with(
        "[run]\non_failure = \"keep_going\"\n[tasks.a]\nrun = \"exit 3\"\n[tasks.b]\nrun = \"touch b\"\n\
         [tasks.c]\nrun = \"touch c\"\nafter = [\"a\"]\n",
    );
    let answer = scene.call(&["run", "-j1"]);
    assert_eq!(answer.code, Some(1));
    assert!(scene.has("b") && !scene.has("c"));
    assert!(answer.err.contains("\nskipped: c\n1 of 3 tasks succeeded in "), "{}", answer.err);
}

/// An apostrophe in a comment was taken for a quote, and the item stood in the line as it was.
#[test]
fn item_is_data_in_a_line_for_the_shell() {
    let scene = scene(
        "[tasks.a]\neach = { glob = \"in/*\" }\nenv = { TIDEGATE_INPUT = \"other\" }\n\
         run = \"\"\"\n# don't stop here\nprintf '%s\\n' {} \"<{}>\" '<{}>' $#\n\"\"\"\n",
    );
    let scene = scene.file("in/a; touch pwned", "").file("in/it's $(touch pwned)", "");
    let answer = scene.call(&["run", "-j1"]);
    let mut right = String::new();
    for name in ["in/a; touch pwned", "in/it's $(touch pwned)"] {
        right += &format!("{name}\n<{name}>\n<{name}>\n0\n");
    }
    assert_eq!(answer.succeeded(), right);
    assert!(!scene.has("pwned"));
}

#[test]
fn after_an_item_has_failed_nothing_else_begins() {
    let scene = scene(
        "[tasks.list]\neach = { items = [\"a\", \"b\"] }\nrun = \"echo {} >> began; exit 1\"\n\
         [tasks.first]\nrun = \"true\"\n[tasks.next]\nafter = [\"first\"]\nrun = \"echo next >> began\"\n",
    );
    for _ in 0..10 {
        let answer = scene.call(&["run", "-j1"]);
        assert_eq!(answer.code, Some(1), "{}", answer.err);
        assert!(scene.read("began").ends_with("a\n"), "{}", answer.err);
    }
}

#[test]
fn a_failure_is_tried_again_and_each_attempt_is_told() {
    let scene = scene(
        "[tasks.a]\nretries = 2\nbackoff = \"10ms\"\nrun = \"echo x >> tries; echo try $TIDEGATE_ATTEMPT; test $(wc -l < tries) -eq 3\"\n",
    );
    let answer = scene.call(&["run"]);
    // What the attempts before the last have written is in their logs.
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), "try 3\n"));
    golden("golden/retries.txt", &calm(&answer.err));
}

/// What commands write is in their logs; as a value it would have to fit into one.
#[test]
fn items_may_write_as_much_as_they_like() {
    let numbers: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    let scene = scene(&format!(
        "[tasks.much]\neach = {{ items = {numbers:?} }}\nrun = \"head -c 70000 /dev/zero | tr '\\\\0' {{}}\"\n",
    ));
    assert_eq!(scene.call(&["run"]).succeeded().len(), 30 * 70_000);
}

#[test]
fn a_time_out_ends_the_command_and_what_it_has_started() {
    let scene = scene(&format!("[tasks.a]\ntimeout = \"300ms\"\nrun = \"\"\"{LONG}\"\"\"\n"));
    let answer = scene.call(&["run"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains("a: failed: timed out after 300ms"), "{}", answer.err);
    assert!(scene.is_gone());
}

#[test]
fn a_command_that_waits_holds_neither_slot_nor_limit() {
    let scene = scene(
        r#"
        [limits]
        one = 1
        [tasks.waits]
        wait_for = [{ file = "there", every = "10ms" }, { delay = "10ms" }]
        run = "echo waits"
        limits = ["one"]
        [tasks.makes]
        run = "echo makes; touch there"
        limits = ["one"]
        "#,
    );
    let answer = scene.call(&["run", "-j1"]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), "makes\nwaits\n"), "{}", answer.err);
    assert!(answer.err.contains("waits: waits for there and 10ms\n"), "{}", answer.err);
}

#[test]
fn a_wait_that_takes_too_long_is_a_failure_that_others_see() {
    let scene = scene(
        "[tasks.a]\nrun = \"touch a\"\nwait_for = { command = [\"false\"], every = \"10ms\", timeout = \"100ms\" }\n\
         [tasks.alarm]\nafter = [\"a\"]\nwhen = \"any_failed\"\nrun = \"touch alarm\"\n",
    );
    let answer = scene.call(&["run"]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.err.contains("a: failed: the wait for command false timed out after 100ms"));
    assert!(!scene.has("a") && scene.has("alarm"), "{}", answer.err);
}

#[test]
fn items_are_found_when_their_turn_has_come_and_are_one_word_each() {
    let scene = scene(
        r#"
        [tasks.make]
        run = "mkdir parts; touch 'parts/a b' \"parts/it's\" parts/c"
        [tasks.each]
        after = ["make"]
        each = { glob = "parts/*" }
        run = "test -e {}; test \"$TIDEGATE_INPUT\" = {}; echo {} >> done"
        [tasks.direct]
        after = ["make"]
        each = { items = [1, "x;y"] }
        run = ["sh", "-c", "echo \"$1\" >> direct", "sh", "<{}>"]
        "#,
    );
    let answer = scene.call(&["run"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    let sorted = |file: &str| {
        let text = scene.read(file);
        let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
        all.sort();
        all
    };
    assert_eq!(sorted("done"), ["parts/a b", "parts/c", "parts/it's"]);
    assert_eq!(sorted("direct"), ["<1>", "<x;y>"]);
}

#[test]
fn an_item_is_never_taken_for_a_command_whatever_is_in_it() {
    let items =
        ["a b", "it's", "$(touch taken)", "`touch taken`", "\\", "\"; touch taken; \"", "*"];
    let scene = scene(
        r#"
        [tasks.each]
        each = { lines = "list" }
        run = """printf '%s\\n' {} "{}" '{}'"""
        "#,
    )
    .file("list", items.join("\n"));
    let out = scene.call(&["run", "-j1"]).succeeded();
    let right: String = items.iter().map(|item| format!("{item}\n").repeat(3)).collect();
    assert_eq!(out, right);
    assert!(!scene.has("taken"));
}

#[test]
fn a_pattern_that_fits_nothing_is_a_failure_and_an_empty_list_is_none() {
    let nothing = scene("[tasks.a]\neach = { glob = \"*.csv\" }\nrun = \"echo {}\"\n");
    let answer = nothing.call(&["run"]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.err.contains("a: failed: nothing in FOLDER fits \"*.csv\"\n"), "{}", answer.err);
    let empty =
        scene("[tasks.a]\neach = { lines = \"list\" }\nrun = \"echo {}\"\n").file("list", "\n");
    assert_eq!(empty.call(&["run"]).succeeded(), "");
}

#[test]
fn limits_hold_across_two_runs_at_once() {
    // Whoever is inside twice cannot make the folder.
    let tasks: String = (0..8)
        .map(|number| {
            format!("[tasks.t{number}]\nlimits = [\"door\"]\nrun = \"mkdir inside; sleep 0.01; rmdir inside\"\n")
        })
        .collect();
    let scene = scene(&format!("[limits]\ndoor = 1\n{tasks}"));
    let (one, two) = (scene.begin(&["run", "-j8"]), scene.begin(&["run", "-j8"]));
    one.end().succeeded();
    two.end().succeeded();
}

#[test]
fn a_limit_that_is_another_in_the_store_is_told() {
    let text =
        |units| format!("[limits]\napi = {units}\n[tasks.a]\nrun = \"true\"\nlimits = [\"api\"]\n");
    let first = Scene::with(&text(2));
    first.call(&["run"]).succeeded();
    let first = first.file("tidegate.toml", text(3));
    let said = first.call(&["run"]).err;
    assert!(
        said.starts_with("limit api is 2 at once in the store and stays so; the file says 3"),
        "{said}"
    );
}

#[test]
fn a_run_inside_a_task_shares_the_store_and_not_the_commands() {
    let inner = "[limits]\none = 1\n[tasks.inner]\nlimits = [\"one\"]\nrun = \"echo inner\"\n";
    let outer = format!(
        "[tasks.outer]\nrun = [\"{}\", \"run\", \"in/tidegate.toml\", \"-j1\"]\n",
        env!("CARGO_BIN_EXE_tidegate")
    );
    let scene = scene(&outer).file("in/tidegate.toml", inner);
    let out = scene.call(&["run", "-j1"]).succeeded();
    assert!(out.contains("inner\n"), "{out}");
    assert!(scene.has(".tidegate/store.db") && !scene.has("in/.tidegate"));
}

#[test]
fn what_commands_write_is_shown_byte_for_byte() {
    let scene = scene("[tasks.a]\nrun = \"printf 'a\\\\377\\\\n\\\\n\\\\0b'\"\n");
    let output = scene.command("", &["run"]).output().unwrap();
    assert_eq!(output.stdout, b"a\xff\n\n\0b");
    let memory = scene.command("", &["run", "--store", "memory:"]).output().unwrap();
    assert_eq!(memory.stdout, b"a\xff\n\n\0b");
}

#[test]
fn what_is_shown_can_be_chosen() {
    let scene = Scene::with(
        "[run]\non_failure = \"keep_going\"\n[tasks.a]\nrun = \"echo a\"\n[tasks.b]\nrun = \"echo b; exit 1\"\n",
    );
    let shown = |how| scene.call(&["run", "-j1", "--show", how]).out;
    assert_eq!((shown("grouped").as_str(), shown("failed").as_str()), ("a\nb\n", "b\n"));
    assert_eq!(shown("none"), "");
}

#[test]
fn a_program_that_is_not_there_is_named_with_where_it_was_looked_for() {
    let scene =
        scene("[tasks.a]\nrun = [\"no-such-program\"]\nretries = 3\nenv = { PATH = \"/none\" }\n");
    let answer = scene.call(&["run"]);
    assert_eq!(answer.code, Some(1));
    let told = "failed: a: there is no program \"no-such-program\" in PATH (/none)\n";
    assert!(answer.err.contains(told), "{}", answer.err);
}

#[test]
fn a_store_that_cannot_be_used_is_exit_code_4() {
    let scene = scene("[tasks.a]\nrun = \"touch a\"\n")
        .file("text", "no database, but a text\n".repeat(99));
    let answers = [
        scene.call(&["run", "--store", "text"]),
        scene.call(&["run", "--store", "nowhere/store.db"]),
    ];
    for answer in answers {
        assert_eq!(answer.code, Some(4), "{}", answer.err);
        assert!(answer.err.starts_with("tidegate: the store cannot be used: "), "{}", answer.err);
        assert!(answer.err.contains("FOLDER/"), "{}", answer.err);
    }
    let scene = scene.variable("TIDEGATE_STORE", "text");
    assert_eq!(scene.call(&["run"]).code, Some(4));
    assert!(!scene.has("a"));
    let unknown = scene.call(&["run", "--store", "papyrus:x"]).wrong();
    assert!(unknown.contains("\"papyrus:x\" is not the address of a store"), "{unknown}");
}

#[test]
fn the_store_is_beside_the_file_for_its_owner_alone_and_git_passes_it_over() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = scene("[tasks.a]\nrun = \"echo $TIDEGATE_STORE\"\n").file("down/x", "");
    let out = scene.call_in("down", &["run"]).succeeded();
    assert_eq!(out, "sqlite:FOLDER/.tidegate/store.db\n");
    let folder = scene.path().join(".tidegate");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(scene.read(".tidegate/.gitignore"), "*\n");
    for named in [".tidegate", ".tidegate/", "sqlite:.tidegate", ".tidegate/store.db"] {
        let out = scene.call(&["run", "--store", named]).succeeded();
        assert_eq!(out, "sqlite:FOLDER/.tidegate/store.db\n", "{named}");
    }
}

#[test]
fn a_store_in_memory_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let scene = scene("[tasks.a]\nrun = \"echo a; exit 1\"\n");
    let scene = scene.variable("TMPDIR", temporary.path().to_str().unwrap());
    let before = scene.files();
    let answer = scene.call(&["run", "--store", "memory:"]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(1), "a\n"));
    assert!(!answer.err.contains("--resume") && !answer.err.contains("log:"), "{}", answer.err);
    assert_eq!(scene.files(), before);
    assert!(crate::running::is_empty(temporary.path()));
}

#[test]
fn only_what_is_chosen_is_run_and_what_is_skipped_counts_as_succeeded() {
    let scene = scene(
        "[tasks.a]\nrun = \"touch a\"\n[tasks.b]\nrun = \"touch b\"\nafter = [\"a\"]\n\
         [tasks.c]\nrun = \"touch c\"\nafter = [\"b\"]\n[tasks.d]\nrun = \"touch d\"\n",
    );
    let answer = scene.call(&["run", "--only", "c", "--skip", "b"]);
    assert_eq!(answer.code, Some(0));
    assert!(answer.err.contains("1 of 1 task succeeded"), "{}", answer.err);
    assert!(!scene.has("a") && !scene.has("b") && scene.has("c") && !scene.has("d"));
}

#[test]
fn whoever_reads_no_further_stops_nothing() {
    let scene =
        scene("[tasks.a]\nrun = \"seq 100000\"\n[tasks.b]\nrun = \"touch b\"\nafter = [\"a\"]\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = scene.command("", &["run"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(scene.has("b"));
}

#[test]
fn an_alarm_for_a_task_that_is_skipped_does_not_sound() {
    let scene = scene(
        "[tasks.a]\nrun = \"true\"\nwait_for = { delay = \"1h\" }\n[tasks.b]\nrun = \"touch b\"\n\
         [tasks.alarm]\nrun = \"touch alarm\"\nafter = [\"a\"]\nwhen = \"any_failed\"\n",
    );
    assert_eq!(scene.call(&["run", "--skip", "a"]).code, Some(0));
    assert!(scene.has("b") && !scene.has("alarm"));
}

#[test]
fn what_is_written_is_shown_also_when_more_happens_at_once_than_can_be_told() {
    let items: Vec<String> = (0..3_000).map(|number| number.to_string()).collect();
    let scene = scene(
        "[tasks.each]\neach = { lines = \"list\" }\nrun = \"echo {}; exit 1\"\n\
         [tasks.tidy]\nafter = [\"each\"]\nwhen = \"all_done\"\nrun = \"echo tidy\"\n",
    )
    .file("list", items.join("\n"));
    let answer = scene.call(&["run", "-j1"]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.out == "0\ntidy\n" || answer.out == "tidy\n0\n", "{}", answer.out);
}

#[test]
fn logs_of_tasks_with_long_names_are_told_apart() {
    let name = "n".repeat(100);
    let scene =
        scene(&format!("[tasks.{name}]\neach = {{ items = [1, 2, 3] }}\nrun = \"echo {{}}\"\n"));
    assert_eq!(scene.call(&["run", "-j1"]).succeeded(), "1\n2\n3\n");
}

#[test]
fn each_command_has_the_number_of_a_slot_that_no_other_has() {
    // Whoever finds its number taken cannot make the folder.
    let one =
        "mkdir n$TIDEGATE_SLOT; sleep 0.02; rmdir n$TIDEGATE_SLOT; echo $TIDEGATE_SLOT >> numbers";
    let tasks: String = (0..12)
        .map(|number| {
            let weight = 1 + number % 2;
            format!("[tasks.t{number}]\nweight = {weight}\nrun = \"{one}\"\n")
        })
        .collect();
    let scene = scene(&tasks);
    scene.call(&["run", "-j3"]).succeeded();
    let numbers = scene.read("numbers");
    assert_eq!(numbers.lines().count(), 12);
    assert!(numbers.lines().all(|number| ["1", "2", "3"].contains(&number)), "{numbers}");
    // The smallest that is free.
    let scene = self::scene(
        "[tasks.a]\nrun = \"echo $TIDEGATE_SLOT\"\n[tasks.b]\nafter = [\"a\"]\nrun = \"echo $TIDEGATE_SLOT\"\n",
    );
    assert_eq!(scene.call(&["run", "-j3"]).succeeded(), "1\n1\n");
}
