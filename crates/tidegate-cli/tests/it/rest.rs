//! Help, schema, the first file, completions, the manual, and ends of pipes.

use crate::support::{Scene, golden};
use std::fs;
use std::process::Stdio;

#[test]
fn help_says_what_there_is() {
    let scene = Scene::new();
    for (name, arguments) in [
        ("help", &["--help"][..]),
        ("help-run", &["run", "--help"]),
        ("help-each", &["each", "--help"]),
        ("help-retry", &["retry", "--help"]),
        ("help-submit", &["submit", "--help"]),
        ("help-worker", &["worker", "--help"]),
        ("help-init", &["init", "--help"]),
        ("help-schema", &["schema", "--help"]),
        ("help-completions", &["completions", "--help"]),
        ("help-man", &["man", "--help"]),
    ] {
        let text = scene.call(arguments).good();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        golden(format!("golden/{name}.txt"), &text);
    }
}

#[test]
fn the_version_is_the_package_s() {
    let said = Scene::new().call(&["--version"]).good();
    assert_eq!(said, format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_wrong_command_line_names_what_is_near() {
    let scene = Scene::new();
    assert!(scene.call(&["shema"]).wrong().contains("'schema'"));
    assert!(scene.call(&["run", "--dryrun"]).wrong().contains("'--dry-run'"));
    assert!(scene.call(&["run", "--dry-run", "--format", "yaml"]).wrong().contains("text, json"));
    assert!(
        scene
            .call(&["man", "walk"])
            .wrong()
            .contains("there is no command \"walk\"; there are run,")
    );
    scene.call(&[]).wrong();
}

#[test]
fn the_first_file_is_right_and_shows_its_plan() {
    let scene = Scene::new();
    let said = scene.call(&["init"]).good();
    assert_eq!(said, "wrote tidegate.toml; try: tidegate run tidegate.toml --dry-run\n");
    assert_eq!(scene.files().len(), 1);
    let plan = scene.call(&["run", "--dry-run", "--format", "json"]).json();
    assert_eq!(plan["waves"].as_array().unwrap().len(), 4);
}

#[test]
fn what_the_first_file_has_in_comments_is_right_too() {
    let scene = Scene::new();
    scene.call(&["init"]).good();
    let text = fs::read_to_string(scene.path().join("tidegate.toml")).unwrap();
    let uncommented = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if rest.contains(" = ") => rest.to_owned(),
        _ => line.to_owned(),
    };
    let all: Vec<_> = text.lines().map(uncommented).collect();
    assert_ne!(all.join("\n") + "\n", text);
    Scene::with(&all.join("\n")).call(&["run", "--dry-run"]).good();
}

#[test]
fn a_file_that_is_there_is_not_written_over() {
    let scene = Scene::with("mine");
    let answer = scene.call(&["init"]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(1), ""));
    let told = "tidegate: tidegate.toml is there already, and stays as it is; name another file\n";
    assert_eq!(answer.err, told);
    assert_eq!(fs::read_to_string(scene.path().join("tidegate.toml")).unwrap(), "mine");
    let answer = scene.call(&["init", "nowhere/x.toml"]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.err.starts_with("tidegate: cannot write nowhere/x.toml: "), "{}", answer.err);
}

#[test]
fn the_schema_is_json_for_the_draft_it_names() {
    let schema = Scene::new().call(&["schema"]).json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    golden("golden/schema.json", &format!("{schema:#}\n"));
}

#[test]
fn completions_and_manual_pages_know_the_options() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(scene.call(&["completions", shell]).good().contains("dry-run"), "{shell}");
    }
    assert!(scene.call(&["man"]).good().contains("tidegate\\-run"));
    assert!(scene.call(&["man", "run"]).good().contains("\\-\\-dry\\-run"));
}

#[test]
fn whoever_reads_no_further_is_no_failure() {
    let scene = Scene::with("[tasks.a]\nrun = \"true\"\n");
    for arguments in
        [&["run", "--dry-run"][..], &["schema"], &["--help"], &["man"], &["completions", "bash"]]
    {
        // Nobody reads from the beginning, so that the first write finds it closed.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = scene.command("", arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn whoever_does_not_hear_complaints_sees_the_exit_code() {
    let scene = Scene::with("x = 1");
    for arguments in [&["run", "--dry-run"][..], &["walk"], &["run"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = scene.command("", arguments).stdout(Stdio::null()).stderr(writer).status();
        assert_eq!(status.unwrap().code(), Some(2), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Scene::new().command("", &["schema"]).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("tidegate: cannot write to stdout: "), "{said}");
}
