//! Who has the last word: the command line, then the environment, then the file, then the default.

use crate::support::Scene;
use serde_json::json;

const TASK: &str = "[tasks.a]\nrun = \"true\"\n";
const FILE: &str = "[run]\nparallel_limit = 2\ntask_timeout = \"2s\"\n[tasks.a]\nrun = \"true\"\n";

/// Slots, seconds, and where they come from.
fn settings(scene: &Scene, arguments: &[&str]) -> (u64, Option<f64>, String, String) {
    let all = [&["run", "--dry-run", "--format", "json"], arguments].concat();
    let plan = scene.call(&all).json();
    let (limit, time) = (&plan["parallel_limit"], &plan["task_timeout"]);
    assert_eq!(plan["waves"][0][0]["timeout"], time["seconds"]);
    let from = |value: &serde_json::Value| value["from"].as_str().unwrap().to_owned();
    (limit["max"].as_u64().unwrap(), time["seconds"].as_f64(), from(limit), from(time))
}

fn environment(scene: Scene) -> Scene {
    scene.variable("TIDEGATE_PARALLEL_LIMIT", "3").variable("TIDEGATE_TASK_TIMEOUT", "3s")
}

const LINE: [&str; 4] = ["-j", "5", "--task-timeout", "5s"];

fn same(word: &str, slots: u64, seconds: Option<f64>) -> (u64, Option<f64>, String, String) {
    (slots, seconds, word.to_owned(), word.to_owned())
}

#[test]
fn by_default_there_are_4_slots_and_no_time_out() {
    assert_eq!(settings(&Scene::with(TASK), &[]), same("default", 4, None));
}

#[test]
fn the_file_goes_before_the_default() {
    assert_eq!(settings(&Scene::with(FILE), &[]), same("file", 2, Some(2.0)));
}

#[test]
fn the_environment_goes_before_the_file_and_the_default() {
    for text in [FILE, TASK] {
        let scene = environment(Scene::with(text));
        assert_eq!(settings(&scene, &[]), same("environment", 3, Some(3.0)));
    }
}

#[test]
fn the_command_line_goes_before_the_environment_the_file_and_the_default() {
    let line = same("command line", 5, Some(5.0));
    for text in [FILE, TASK] {
        assert_eq!(settings(&environment(Scene::with(text)), &LINE), line);
        assert_eq!(settings(&Scene::with(text), &LINE), line);
    }
}

#[test]
fn each_setting_is_decided_by_itself() {
    let scene = Scene::with(FILE).variable("TIDEGATE_TASK_TIMEOUT", "90");
    let (slots, seconds, limit_from, time_from) = settings(&scene, &["-j", "7"]);
    assert_eq!((slots, seconds), (7, Some(90.0)));
    assert_eq!((limit_from.as_str(), time_from.as_str()), ("command line", "environment"));
}

#[test]
fn a_task_that_has_a_time_out_keeps_it() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\ntimeout = 1\n");
    let plan = scene.call(&["run", "--dry-run", "--format", "json", "--task-timeout", "9s"]).json();
    assert_eq!(plan["waves"][0][0]["timeout"], 1.0);
}

#[test]
fn auto_and_percentages_go_by_the_processors() {
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let slots = |word: &str| settings(&Scene::with(TASK), &["-j", word]).0;
    assert_eq!(slots("auto"), cpus);
    assert_eq!(slots("100%"), cpus);
    assert_eq!(slots("300%"), cpus * 3);
    assert_eq!(slots("1%"), (cpus / 100).max(1));
    let text = "[run]\nparallel_limit = { min = 2, max = 16 }\n[tasks.a]\nrun = \"true\"\n";
    let plan = Scene::with(text).call(&["run", "--dry-run", "--format", "json"]).json();
    assert_eq!(plan["parallel_limit"]["min"], json!(2));
    assert_eq!(plan["parallel_limit"]["max"], json!(16));
}

#[test]
fn a_limit_or_time_out_that_makes_no_sense_is_refused_wherever_it_comes_from() {
    for value in ["0", "-1", "abc", "", "0%", "1.5"] {
        let line = Scene::with(TASK).call(&["run", "--dry-run", "-j", value]).wrong();
        assert!(line.contains(&format!("invalid value '{value}'")) || value.is_empty(), "{line}");
        let scene = Scene::with(TASK).variable("TIDEGATE_PARALLEL_LIMIT", value);
        let variable = scene.call(&["run", "--dry-run"]).wrong();
        let told =
            format!("tidegate: TIDEGATE_PARALLEL_LIMIT cannot be \"{value}\"; it must be a whole");
        assert!(variable.starts_with(&told), "{variable}");
    }
    for value in ["0", "-1", "abc", "0s", "1.5"] {
        let line = Scene::with(TASK).call(&["run", "--dry-run", "--task-timeout", value]).wrong();
        assert!(line.contains(&format!("invalid value '{value}'")), "{line}");
        let scene = Scene::with(TASK).variable("TIDEGATE_TASK_TIMEOUT", value);
        let variable = scene.call(&["run", "--dry-run"]).wrong();
        let told =
            format!("tidegate: TIDEGATE_TASK_TIMEOUT cannot be \"{value}\"; it must be a dur");
        assert!(variable.starts_with(&told), "{variable}");
    }
}

#[test]
fn a_variable_that_does_not_count_is_not_looked_at() {
    let scene = Scene::with(TASK).variable("TIDEGATE_PARALLEL_LIMIT", "abc");
    assert_eq!(settings(&scene, &["-j", "2"]).0, 2);
}

#[test]
fn a_weight_is_held_against_the_limit_that_counts() {
    let text = "[run]\nparallel_limit = 2\n[tasks.a]\nrun = \"true\"\nweight = 3\n";
    let scene = Scene::with(text);
    assert!(
        scene.call(&["run", "--dry-run"]).wrong().contains("does not fit a parallel_limit of 2; ")
    );
    scene.call(&["run", "--dry-run", "-j", "3"]).good();
    let line = scene.call(&["run", "--dry-run", "-j", "1"]).wrong();
    assert!(line.contains("a parallel_limit of 1 from the command line; "), "{line}");
    let scene = Scene::with(text).variable("TIDEGATE_PARALLEL_LIMIT", "1");
    let variable = scene.call(&["run", "--dry-run"]).wrong();
    assert!(
        variable.contains("a parallel_limit of 1 from TIDEGATE_PARALLEL_LIMIT; "),
        "{variable}"
    );
}
