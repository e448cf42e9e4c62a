//! Every mistake in a file has its message: `tests/mistakes` has the files, and beside each what is
//! said of it.

use crate::support::{Scene, golden};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_mistake_is_told_with_its_place_and_what_would_be_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let names = |extension: &str| -> BTreeSet<String> {
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|found| found == extension));
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let all = names("toml");
    assert!(all.len() > 30, "the files are where they are looked for");
    for name in &all {
        let scene = Scene::new()
            .file("tidegate.toml", fs::read(folder.join(format!("{name}.toml"))).unwrap())
            .file("wrong.env", "A=1\nexport B='x\n\nno variable\n1C=2\nD=\"a\"b\n");
        let said = scene.call(&["run", "--dry-run"]).wrong();
        assert!(said.starts_with("tidegate.toml:"), "{name}: {said}");
        golden(format!("mistakes/{name}.txt"), &said);
    }
    assert_eq!(names("txt"), all, "every text has its file");
}

#[test]
fn many_mistakes_are_counted_and_the_first_are_shown() {
    let keys: String = (0..50).map(|number| format!("zz{number} = 1\n")).collect();
    let said = Scene::with(&format!("[tasks.a]\nrun = \"x\"\n{keys}")).call(&["run", "--dry-run"]);
    let said = said.wrong();
    assert_eq!(said.matches("unknown key").count(), 20);
    assert!(said.ends_with("50 mistakes, of which the first 20 are shown\n"), "{said}");
}

#[test]
fn every_name_that_is_shown_is_shown_with_the_one_that_was_meant() {
    let task = |number| format!("[tasks.task{number}]\nrun = \"x\"\nafter = [\"tsak{number}\"]\n");
    let text: String = (100..150).map(task).collect();
    let said = Scene::with(&text).call(&["run", "--dry-run"]).wrong();
    assert_eq!(said.matches("; did you mean \"task").count(), 20, "{said}");
    let task = |number| format!("[tasks.a{number}]\nrun = \"x\"\nlimits = [\"apl\"]\n");
    let text: String = (100..150).map(task).collect();
    let said =
        Scene::with(&format!("[limits]\napi = 1\n{text}")).call(&["run", "--dry-run"]).wrong();
    assert_eq!(said.matches(": did you mean \"api\"?").count(), 20, "{said}");
}

#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    let text = "[tasks.a]\nrun = \"x\"\n\"\\u001b[2Jz\" = 1\nwhen = \"\\u001b[2J\"\n\
                after = [\"\\u001b[2J\"]\nlimits = [\"\\u001b[2J\"]\nenv_file = \"\\u001b[2J\"\n";
    for text in [text, "[tasks.a]\nrun = \"\u{1b}[2J\"\n"] {
        let said = Scene::with(text).call(&["run", "--dry-run"]).wrong();
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    let plan = Scene::with("[run]\nname = \"\\u001b[2J\"\n[tasks.a]\nrun = \"\\u001b[2J\"\n");
    assert!(!plan.call(&["run", "--dry-run"]).good().contains('\u{1b}'));
}

#[test]
fn lines_of_a_file_of_variables_are_not_shown() {
    let scene = Scene::with("[tasks.a]\nrun = \"x\"\nenv_file = \"e\"\n")
        .file("e", "KEY='hidden\nhidden\n");
    let said = scene.call(&["run", "--dry-run"]).wrong();
    assert!(said.starts_with("e:1:5: ") && said.contains("\ne:2:1: "), "{said}");
    assert!(!said.contains("hidden"), "{said}");
}
