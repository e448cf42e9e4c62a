//! Files that are submitted to a queue, and workers that serve it.

use crate::running::{LONG, until};
use crate::support::{Answer, Scene, golden};
use std::fs;
use std::time::Duration;
use tidegate::{Context, Engine, Task, TaskError, Workflow};

const WORK: &[&str] = &["worker", "--queue", "q"];

fn submit(scene: &Scene) -> String {
    let id = scene.call(&["submit", "--queue", "q"]).good();
    assert_eq!(id.trim().len(), 26, "{id}");
    id.trim().to_owned()
}

/// Told to end when there is this file, a worker has nothing left to do.
async fn ended(scene: &Scene, file: &str) -> Answer {
    let worker = scene.begin(WORK);
    until("the work is done", || scene.has(file)).await;
    worker.signal("TERM");
    worker.end()
}

#[tokio::test]
async fn a_worker_does_what_was_submitted_as_it_was_submitted() {
    let scene = Scene::with(
        "[tasks.a]\nrun = \"echo $TIDEGATE_RUN_ID > a\"\nwait_for = { delay = \"1ms\" }\n\
         [tasks.b]\nafter = [\"a\"]\neach = { items = [\"x\", \"y z\"] }\nrun = \"touch 'b {}'\"\nretries = 1\n\
         [tasks.c]\nafter = [\"b\"]\nrun = \"touch c\"\n",
    );
    let run = submit(&scene);
    assert!(!scene.has("a"), "nobody serves the queue");
    // What is in the file now is another matter.
    fs::write(scene.path().join("tidegate.toml"), "[tasks.other]\nrun = \"touch other\"\n")
        .unwrap();
    let answer = ended(&scene, "c").await;
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), ""), "{}", answer.err);
    assert_eq!(scene.read("a").trim(), run);
    assert!(scene.has("b x") && scene.has("b y z") && !scene.has("other"));
    for line in
        ["/a: waits for 1ms\n", "/a: started\n", "/b[1]: succeeded in ", "/c: succeeded in "]
    {
        assert!(answer.err.contains(line), "{line}: {}", answer.err);
    }
}

#[tokio::test]
async fn two_workers_share_the_work_and_the_limits() {
    let scene = Scene::with(
        "[limits]\none = 1\n[tasks.both]\neach = { items = [\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"] }\nlimits = [\"one\"]\n\
         run = \"\"\"mkdir alone || echo {} >> crowd; echo {} >> done; rmdir alone\"\"\"\n\
         [tasks.last]\nafter = [\"both\"]\nrun = \"touch last\"\n",
    );
    submit(&scene);
    let other = scene.begin(WORK);
    let answer = ended(&scene, "last").await;
    other.signal("TERM");
    assert_eq!((answer.code, other.end().code), (Some(0), Some(0)));
    assert_eq!((scene.read("done").lines().count(), scene.read("crowd").as_str()), (6, ""));
}

#[tokio::test]
async fn another_worker_takes_over_from_one_that_was_killed_and_there_are_no_twins() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}; touch end\"\"\"\n"));
    submit(&scene);
    let first = scene.begin(WORK);
    scene.begun(1).await;
    let second = scene.begin(WORK);
    first.kill();
    scene.begun(2).await;
    scene.touch("enough");
    until("it has ended", || scene.has("end")).await;
    second.signal("TERM");
    assert_eq!(second.end().code, Some(0));
    assert_eq!((scene.read("twins").as_str(), scene.read("begun").lines().count()), ("", 2));
}

#[tokio::test]
async fn a_worker_that_is_interrupted_hands_back_what_it_was_doing() {
    let scene = Scene::with(&format!("[tasks.long]\nrun = \"\"\"{LONG}; touch end\"\"\"\n"));
    submit(&scene);
    let worker = scene.begin(WORK);
    scene.begun(1).await;
    worker.signal("INT");
    let answer = worker.end();
    assert_eq!(answer.code, Some(130), "{}", answer.err);
    assert!(answer.err.contains("/long: interrupted\n"), "{}", answer.err);
    assert!(scene.is_gone() && !scene.has("end"));
    scene.touch("enough");
    assert_eq!(ended(&scene, "end").await.code, Some(0));
    assert_eq!(scene.read("begun").lines().count(), 2);
}

#[test]
fn with_a_key_it_is_the_same_run_each_time() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    let call = |key| scene.call(&["submit", "--queue", "q", "--key", key]).good();
    let first = call("today");
    assert_eq!(call("today"), first);
    assert_ne!(call("tomorrow"), first);
}

#[tokio::test]
async fn what_was_not_submitted_here_fails_and_says_so() {
    async fn nothing(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    submit(&scene);
    let address = format!("sqlite:{}", scene.path().join(".tidegate/store.db").display());
    let workflow = Workflow::of(Task::new("app", nothing)).unwrap();
    let app = Engine::builder(address).queues(["q"]).workflow(workflow).connect().await.unwrap();
    let run = app.submit("app", ()).await.unwrap();
    let worker = scene.begin(WORK);
    let status = run.wait().await.unwrap();
    let error = status.task("app").unwrap().error.clone().unwrap();
    assert!(error.contains("its run was not submitted with \"tidegate submit\""), "{error}");
    worker.signal("TERM");
    assert_eq!(worker.end().code, Some(0));
    app.shutdown(Duration::ZERO).await;
}

#[test]
fn a_submitted_run_is_none_that_run_goes_on_with() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    submit(&scene);
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!(answer.code, Some(1));
    assert!(
        answer.err.contains("there is no run of tidegate.toml to go on with"),
        "{}",
        answer.err
    );
}

#[test]
fn what_makes_no_sense_is_said() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\nlimits = [\"x\"]\n");
    let mut texts = String::new();
    for arguments in [
        &["submit"][..],
        &["submit", "--queue", ""],
        &["submit", "--queue", "q"],
        &["submit", "no.toml", "--queue", "q"],
        &["worker"],
        &["worker", "--queue", "q", "--store", "memory:"],
        &["worker", "--queue", "q", "-j0"],
        &["worker", "--queue", "q", "-j", "-1"],
        &["worker", "--queue", "q", "-j", "abc"],
    ] {
        let answer = scene.call(arguments);
        texts += &format!("$ tidegate {}\n{}\n", arguments.join(" "), answer.wrong());
    }
    golden("golden/queues-wrong.txt", &texts);
    assert_eq!(scene.files().len(), 1, "nothing was made: {:?}", scene.files());
}

#[test]
fn a_store_that_is_none_cannot_be_used() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n").file("notes.txt", "not a database");
    for arguments in [
        ["submit", "--queue", "q", "--store", "notes.txt"],
        ["worker", "--queue", "q", "--store", "notes.txt"],
    ] {
        let answer = scene.call(&arguments);
        assert_eq!(answer.code, Some(4), "{}", answer.err);
        assert!(answer.err.contains("notes.txt"), "{}", answer.err);
    }
    assert_eq!(scene.read("notes.txt"), "not a database");
}
