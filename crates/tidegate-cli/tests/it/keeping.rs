//! The store as a whole: checked, pruned, backed up and copied.

use crate::running::LONG;
use crate::support::Scene;
use serde_json::Value;

/// A store with one run.
fn scene() -> Scene {
    let scene = Scene::with("[run]\nname = \"test\"\n[tasks.a]\nrun = \"echo a\"\n");
    scene.call(&["run"]).succeeded();
    scene
}

#[test]
fn a_store_in_order_is_found_so() {
    let scene = scene();
    for arguments in [
        &["store", "check"][..],
        &["store", "doctor", "--thorough"],
        &["doctor"],
        &["store", "check", "--repair"],
    ] {
        assert_eq!(scene.call(arguments).good(), "nothing is wrong with the store\n");
    }
    let json = scene.call(&["doctor", "--format", "json"]).json();
    assert_eq!(json, serde_json::json!({ "version": 1, "findings": [], "repaired": [] }));
}

#[tokio::test]
async fn a_stopped_process_is_a_finding_that_is_named() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    running.signal("STOP");
    let found = |arguments: &[&str]| -> Value {
        let answer = scene.call(&[arguments, &["--format", "json"]].concat());
        serde_json::from_str(&answer.out).unwrap()
    };
    // It counts as stopped once it has given no sign for a while.
    crate::running::until("it is found", || {
        found(&["doctor"])["findings"] != serde_json::json!([])
    })
    .await;
    let answer = scene.call(&["store", "check"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""));
    assert!(answer.out.contains(&running.id().to_string()), "{}", answer.out);
    assert!(answer.out.ends_with("1 finding left\n"), "{}", answer.out);
    // No repair starts a process.
    assert_eq!(scene.call(&["doctor", "--repair"]).code, Some(1));
    running.signal("CONT");
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
}

#[test]
fn old_runs_are_removed_with_their_logs() {
    let scene = scene();
    assert_eq!(scene.call(&["store", "prune"]).good(), "removed 0 runs and 0 logs\n");
    let pruned = scene.call(&["store", "prune", "--older-than", "0s"]).good();
    assert_eq!(pruned, "removed 1 run and 1 log\n");
    assert_eq!(scene.call(&["list"]).out, "");
}

#[tokio::test]
async fn a_backup_is_a_store_of_its_own_and_is_made_while_others_work() {
    let scene =
        Scene::with(&format!("[run]\nname = \"test\"\n[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    assert_eq!(scene.call(&["store", "backup", "copy.db"]).good(), "wrote copy.db\n");
    let said = scene.call(&["store", "backup", "copy.db"]).undone();
    assert!(
        said.starts_with("tidegate: cannot copy the store: ") && said.contains("copy.db"),
        "{said}"
    );
    let said = scene.call(&["store", "backup", "no/folder/copy.db"]).undone();
    assert!(said.contains("folder"), "{said}");
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
    let list = scene.call(&["list", "--store", "copy.db", "--format", "json"]).json();
    assert_eq!(
        (&list["runs"][0]["name"], &list["runs"][0]["state"]),
        (&"test".into(), &"open".into())
    );
}

#[tokio::test]
async fn a_store_is_copied_while_nobody_works_on_it() {
    let scene =
        Scene::with(&format!("[run]\nname = \"test\"\n[tasks.long]\nrun = \"\"\"{LONG}\"\"\"\n"));
    let running = scene.begin(&["run"]);
    scene.begun(1).await;
    let copy = |from: &str, to: &str| scene.call(&["store", "copy", from, to]);
    let from = ".tidegate/store.db";
    let said = copy(from, "copy.db").undone();
    let process = format!("(process {}); stop that first", running.id());
    assert!(
        said.contains("FOLDER/.tidegate/store.db is in use by worker ") && said.contains(&process),
        "{said}"
    );
    assert!(!scene.has("copy.db"));
    scene.touch("enough");
    assert_eq!(running.end().code, Some(0));
    let said = copy(from, "sqlite:copy.db").good();
    assert_eq!(
        said,
        "copied FOLDER/.tidegate/store.db to FOLDER/copy.db; the logs of commands stay there\n"
    );
    let list = scene.call(&["list", "--store", "copy.db", "--format", "json"]).json();
    assert_eq!(
        (&list["runs"][0]["name"], &list["runs"][0]["state"]),
        (&"test".into(), &"succeeded".into())
    );
    scene.call(&["doctor", "--store", "copy.db", "--thorough"]).good();
}

#[test]
fn what_cannot_be_copied_is_refused_and_stays_as_it_is() {
    let scene = scene().file("there", "mine");
    let copy = |from: &str, to: &str| scene.call(&["store", "copy", from, to]);
    let from = ".tidegate/store.db";
    assert_eq!(
        copy(from, "there").undone(),
        "tidegate: FOLDER/there is there already, and stays as it is\n"
    );
    assert_eq!(scene.read("there"), "mine");
    assert!(copy(from, from).undone().contains("is there already"));
    for (from, to) in
        [(from, "postgres://x"), ("postgres://x", "y.db"), (from, "memory:"), (from, "")]
    {
        let said = copy(from, to).wrong();
        assert!(
            said.ends_with(" cannot be copied from or to: this build knows sqlite:\n"),
            "{said}"
        );
    }
    assert!(copy("none.db", "new.db").undone().contains("there is no store at FOLDER/none.db"));
    assert!(copy("there", "new.db").unusable().contains("FOLDER/there is not a database"));
    assert!(copy(from, "no/folder/new.db").undone().contains("cannot copy the store"));
    assert!(!scene.has("new.db") && !scene.has("y.db"));
}
