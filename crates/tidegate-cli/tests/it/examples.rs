//! The examples are what they say, and go on after a kill.

use crate::running::until;
use crate::support::Scene;
use std::fs;
use std::path::Path;

/// A scene with a copy of an example.
fn example(name: &str) -> Scene {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let scene = Scene::new();
    copy(&from, scene.path());
    scene
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        match path.is_dir() {
            // What running it here has left.
            true if [".tidegate", "work", "out"].iter().any(|left| name == *left) => {}
            true => {
                fs::create_dir(to.join(&name)).unwrap();
                copy(&path, &to.join(&name));
            }
            false => drop(fs::copy(&path, to.join(&name)).unwrap()),
        }
    }
}

const REPORT: &str = "region,total\neast,2002000\nnorth,2502500\nsouth,2502500\nwest,2002000\n";

#[tokio::test]
async fn the_nightly_job_makes_its_report_and_cleans_up() {
    let scene = example("nightly");
    assert_eq!(scene.call(&["run"]).succeeded(), REPORT);
    assert_eq!(scene.read("work/report.txt"), REPORT);
    assert!(!scene.has("work/north.csv"));
    let server = Path::new("/proc").join(scene.read("work/server.pid").trim()).join("cmdline");
    let is_server = |line: String| line.contains("server.pl");
    until("its server is gone", || !fs::read_to_string(&server).is_ok_and(is_server)).await;
}

#[tokio::test]
async fn the_nightly_job_goes_on_after_a_kill_where_it_was() {
    let scene = example("nightly");
    let text = scene.read("tidegate.toml");
    let waits = text.replace("sleep 1;", "while [ ! -e deliver ]; do sleep 0.01; done;");
    assert_ne!(text, waits);
    let scene = scene.file("tidegate.toml", waits);
    let running = scene.begin(&["run"]);
    let totals = ["north", "south", "east", "west"].map(|region| format!("work/{region}.total"));
    until("all is transformed", || totals.iter().all(|total| scene.has(total))).await;
    running.kill();
    scene.touch("deliver");
    let answer = scene.call(&["run", "--resume"]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), REPORT), "{}", answer.err);
    let kept = answer.err.lines().find(|line| line.starts_with("not run again: ")).unwrap();
    assert!(kept.starts_with("not run again: prepare, server, fetch"), "{kept}");
}

#[test]
fn the_checks_of_the_monorepo_pass_and_name_what_is_wrong() {
    let scene = example("monorepo");
    scene.call(&["run"]).succeeded();
    assert!(scene.has("out/packages.tar.gz"));
    // A test that fails, and spaces at the end of a line; both are wanted.
    let scene = scene
        .file("packages/sum/test.sh", "#!/bin/sh\nfalse\n")
        .file("packages/words/main.sh", "#!/bin/sh \nwc -w\n");
    let answer = scene.call(&["run"]);
    assert_eq!(answer.code, Some(1));
    for line in
        ["failed: whitespace: ", "packages/words/main.sh:1:#!/bin/sh", "for packages/sum/test.sh"]
    {
        assert!(answer.err.contains(line), "{line}: {}", answer.err);
    }
    assert!(answer.err.contains("\nskipped: bundle, try_bundle, sizes\n"), "{}", answer.err);
}
