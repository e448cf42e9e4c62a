//! Going on with a run: what has succeeded is not run again, and nothing runs twice.

use crate::running::{LONG, calm, until};
use crate::support::{Scene, golden};

const FAILS: &str = "[run]\nname = \"test\"\non_failure = \"keep_going\"\n\
    [tasks.a]\nrun = \"echo a >> done\"\n\
    [tasks.b]\nafter = [\"a\"]\nrun = \"test -e mended; echo b >> done\"\n\
    [tasks.c]\nafter = [\"b\"]\nrun = \"echo c >> done\"\n\
    [tasks.d]\nafter = [\"a\"]\nrun = \"echo d >> done\"\n";

#[test]
fn what_has_succeeded_is_not_run_again() {
    let scene = Scene::with(FAILS);
    assert_eq!(scene.call(&["run", "-j1"]).code, Some(1));
    scene.touch("mended");
    let answer = scene.call(&["run", "--resume", "-j1"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "a\nd\nb\nc\n");
    golden("golden/resume.txt", &calm(&answer.err));
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(0));
    assert_eq!(calm(&answer.err), "nothing is left to do: all of run RUN has succeeded\n");
    assert_eq!(scene.read("done"), "a\nd\nb\nc\n");
}

#[test]
fn what_is_defined_otherwise_is_run_again_and_listed() {
    let scene = Scene::with(FAILS);
    assert_eq!(scene.call(&["run", "-j1"]).code, Some(1));
    let scene =
        scene.file("tidegate.toml", FAILS.replace("echo d >>", "echo dd >>")).file("mended", "");
    let answer = scene.call(&["run", "--resume", "-j1"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert!(
        answer.err.contains("\nnot run again: a\nchanged, and run again: d\n"),
        "{}",
        answer.err
    );
    assert_eq!(scene.read("done"), "a\nd\nb\ndd\nc\n");
}

#[test]
fn what_is_given_more_time_or_more_attempts_is_not_done_again() {
    let scene = Scene::with(
        "[tasks.a]\nwait_for = { file = \"tidegate.toml\", timeout = \"1h\" }\nrun = \"echo a >> done\"\n\
         [tasks.b]\neach = { items = [\"quick\", \"long\"] }\nafter = [\"a\"]\ntimeout = \"1h\"\n\
         run = \"if [ {} = long ]; then test -e mended; fi; echo {} >> done\"\n",
    );
    assert_eq!(scene.call(&["run", "-j1"]).code, Some(1));
    let other = "retries = 1\nweight = 2\npriority = 3\ntimeout = \"2h\"\n";
    let other = scene.read("tidegate.toml").replace("timeout = \"1h\"\n", other);
    let other = other.replace("\"1h\"", "\"2h\"");
    let scene = scene.file("tidegate.toml", other).file("mended", "");
    let answer = scene.call(&["run", "--resume", "-j2"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "a\nquick\nlong\n");
}

#[tokio::test]
async fn after_a_kill_the_rest_is_done_and_the_command_has_no_twin() {
    let scene = Scene::with(&format!(
        "[tasks.first]\nrun = \"echo first >> done\"\n\
         [tasks.long]\nafter = [\"first\"]\nrun = \"\"\"{LONG}; echo long >> done\"\"\"\n\
         [tasks.last]\nafter = [\"long\"]\nrun = \"echo last >> done\"\n"
    ))
    .file("stubborn", "");
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    running.kill();
    let running = scene.begin(&["run", "--resume"]);
    scene.begun(2).await;
    scene.touch("enough");
    let answer = running.end();
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert!(answer.err.contains("\nnot run again: first\n"), "{}", answer.err);
    assert_eq!(scene.read("done"), "first\nlong\nlast\n");
    assert_eq!(scene.read("twins"), "");
}

#[tokio::test]
async fn a_command_that_was_told_to_stop_when_its_process_died_has_no_twin_either() {
    // In the store it has ended; it has five seconds to do so, and nobody is left to count them.
    let scene = Scene::with(&format!(
        "[run]\non_failure = \"fail_fast_kill\"\n\
         [tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n\
         [tasks.fails]\nrun = \"\"\"while [ ! -e begun ]; do sleep 0.01; done; \
         while [ -e second ] && [ ! -e enough ]; do sleep 0.01; done; test -e enough\"\"\"\n"
    ))
    .file("stubborn", "");
    let said = std::fs::File::create(scene.path().join("said")).unwrap();
    let running = scene.begin_with(scene.command("", &["run"]).stderr(said));
    until("it is told to stop", || scene.read("said").contains("long: cancelled")).await;
    running.kill();
    // Then it fails no more before the other has begun.
    scene.touch("second");
    let running = scene.begin(&["run", "--resume"]);
    scene.begun(2).await;
    scene.touch("enough");
    running.end();
    assert_eq!(scene.read("twins"), "");
}

#[tokio::test]
async fn after_a_kill_items_that_were_done_are_not_done_again() {
    let scene = Scene::with(&format!(
        "[tasks.each]\neach = {{ items = [\"quick\", \"long\"] }}\n\
         run = \"\"\"if [ {{}} = long ]; then {LONG}; fi; echo {{}} >> done\"\"\"\n"
    ));
    let running = scene.begin(&["run", "-j1"]);
    scene.begun(1).await;
    running.kill();
    scene.touch("enough");
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "quick\nlong\n");
    assert_eq!(scene.read("twins"), "");
}

#[tokio::test]
async fn items_that_were_done_are_not_done_again_after_a_resume_that_was_stopped_before_them() {
    let scene = Scene::with(&format!(
        "[run]\nparallel_limit = 1\non_failure = \"keep_going\"\n\
         [tasks.first]\npriority = 60\n\
         run = \"\"\"if [ -e slow ]; then {LONG}; fi; test -e mended\"\"\"\n\
         [tasks.each]\neach = {{ items = [\"1\", \"2\", \"3\"] }}\n\
         run = \"echo {{}} >> done; test {{}} != 3 || test -e mended\"\n"
    ));
    assert_eq!(scene.call(&["run"]).code, Some(1));
    scene.touch("slow");
    for times in 1..=2 {
        // While the first task has the only slot, no item can begin.
        let running = scene.begin(&["run", "--resume"]);
        scene.begun(times).await;
        running.signal("INT");
        assert_eq!(running.end().code, Some(130));
    }
    scene.touch("enough");
    scene.touch("mended");
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(scene.read("done"), "1\n2\n3\n3\n");
}

#[tokio::test]
async fn a_run_that_is_going_on_is_not_gone_on_with() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    let told = format!("is still going on in process {}; stop that first\n", running.id());
    assert!(answer.err.ends_with(&told), "{}", answer.err);
    scene.touch("enough");
    running.end().succeeded();
    assert_eq!(scene.read("begun").lines().count(), 1);
}

#[tokio::test]
async fn run_that_is_going_on_is_known_by_whatever_path_its_store_is_named() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let scene = scene.file("stubborn", "").file("elsewhere/file", "");
    let running = scene.begin(&["run", "--store", "jobs.db"]);
    scene.begun(1).await;
    let link = scene.path().join("elsewhere/link.db");
    std::os::unix::fs::symlink("../jobs.db", link).unwrap();
    let answer = scene.call(&["run", "--resume", "--store", "elsewhere/link.db"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    let told = format!("is still going on in process {}; stop that first\n", running.id());
    assert!(answer.err.ends_with(&told), "{}", answer.err);
    scene.touch("enough");
    running.end().succeeded();
    assert_eq!(scene.read("begun").lines().count(), 1);
    assert_eq!(scene.read("twins"), "");
    let beside = std::fs::read_dir(scene.path().join("elsewhere")).unwrap();
    assert_eq!(beside.count(), 2, "what belongs to the store is beside the store");
}

#[tokio::test]
async fn run_that_is_going_on_is_known_by_the_lock_of_its_worker_alone() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run", "--store", "jobs.db"]);
    scene.begun(1).await;
    for path in scene.files() {
        let is_beside = path.parent() == Some(scene.path()) && path.is_dir();
        if is_beside && !path.ends_with("jobs.db-workers") && !path.ends_with("jobs.db-logs") {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    let answer = scene.call(&["run", "--resume", "--store", "jobs.db"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains("is still going on in process"), "{}", answer.err);
    scene.touch("enough");
    running.end().succeeded();
}

#[tokio::test]
async fn one_of_two_processes_goes_on_with_a_run_and_the_other_is_refused() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    running.kill();
    let both = [scene.begin(&["run", "--resume"]), scene.begin(&["run", "--resume"])];
    scene.begun(2).await;
    // The first of them to end is the one that is refused: the other waits for the file.
    let [mut one, mut two] = both;
    until("one of them is refused", || one.has_ended() || two.has_ended()).await;
    let (refused, goes_on) = if one.has_ended() { (one, two) } else { (two, one) };
    let told = format!("is still going on in process {}; stop that first\n", goes_on.id());
    scene.touch("enough");
    goes_on.end().succeeded();
    let refused = refused.end();
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.ends_with(&told), "{}", refused.err);
    assert_eq!(scene.read("begun").lines().count(), 2);
    assert_eq!(scene.read("twins"), "");
}

#[test]
fn without_a_run_of_this_file_there_is_nothing_to_go_on_with() {
    let scene =
        Scene::with("[tasks.a]\nrun = \"true\"\n").file("b.toml", "[tasks.b]\nrun = \"true\"\n");
    scene.call(&["run", "b.toml"]).succeeded();
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(1));
    let told = "tidegate: there is no run of tidegate.toml to go on with; leave --resume out\n";
    assert_eq!(answer.err, told);
    let answer = scene.call(&["run", "--resume=xyz", "--store", "memory:"]);
    assert_eq!(answer.code, Some(2));
}

#[test]
fn a_run_is_named_by_the_beginning_of_its_id() {
    let scene = Scene::with("[tasks.a]\nrun = \"echo $TIDEGATE_RUN_ID >> ids; test -e mended\"\n");
    assert_eq!(scene.call(&["run"]).code, Some(1));
    scene.touch("mended");
    scene.call(&["run"]).succeeded();
    let first = scene.read("ids").lines().next().unwrap().to_owned();
    let answer = scene.call(&["run", &format!("--resume={}", &first[..24])]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert!(answer.err.contains(&format!("goes on with run {first}\n")), "{}", answer.err);
    let answer = scene.call(&["run", "--resume=0"]);
    assert!(answer.wrong().starts_with("tidegate: --resume=0 may be run "));
}

#[test]
fn what_was_chosen_stays_chosen() {
    let scene = Scene::with(FAILS);
    assert_eq!(scene.call(&["run", "--only", "b"]).code, Some(1));
    scene.touch("mended");
    assert_eq!(scene.call(&["run", "--resume"]).code, Some(0));
    assert_eq!(scene.read("done"), "a\nb\n");
    let said = scene.call(&["run", "--resume", "--only", "b"]).wrong();
    assert!(said.contains("--only"), "{said}");
}
