//! Which file is read, and what is said of one that cannot be.

use crate::support::{Scene, golden};

const GOOD: &str = "[tasks.a]\nrun = \"true\"\n";

#[test]
fn the_nearest_file_upwards_is_read_and_its_folder_is_where_paths_begin() {
    let scene = Scene::with(GOOD).file("down/deeper/x", "").file("down/tidegate.toml", GOOD);
    let plan = scene.call_in("down/deeper", &["run", "--dry-run", "--format", "json"]).json();
    assert_eq!(plan["file"], "../tidegate.toml");
    assert_eq!(plan["folder"], "FOLDER/down");
    assert_eq!(plan["name"], "down");
    assert_eq!(plan["waves"][0][0]["dir"], "FOLDER/down");
    let named =
        scene.call_in("down", &["run", "../tidegate.toml", "--dry-run", "--format", "json"]);
    assert_eq!(named.json()["folder"], "FOLDER");
}

#[test]
fn without_a_file_the_folders_are_named_that_were_looked_in() {
    let scene = Scene::new().file("down/x", "");
    let said = scene.call_in("down", &["run", "--dry-run"]).wrong();
    assert!(
        said.starts_with(
            "tidegate: there is no tidegate.toml in FOLDER/down, nor above it in FOLDER, /"
        ),
        "{said}"
    );
    assert!(said.ends_with(", /; name a file, or write one with \"tidegate init\"\n"), "{said}");
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let scene = Scene::with(GOOD)
        .file("latin.toml", b"[tasks.a]\nrun = \"gr\xfc\xdfe\"\n")
        .file("utf16.toml", b"\xff\xfe[\0t\0")
        .file("empty/x", "");
    let said: Vec<String> = ["missing.toml", "latin.toml", "utf16.toml", ".", "empty"]
        .iter()
        .map(|file| scene.call(&["run", file, "--dry-run"]).wrong())
        .collect();
    golden("golden/unreadable.txt", &said.concat());
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_a_file_that_cannot_be_read() {
    let scene = Scene::new();
    std::os::unix::fs::symlink("tidegate.toml", scene.path().join("tidegate.toml")).unwrap();
    let said = scene.call(&["run", "--dry-run"]).wrong();
    assert!(said.starts_with("tidegate: cannot read tidegate.toml: "), "{said}");
}

#[test]
fn a_mark_of_the_encoding_and_line_ends_of_windows_are_passed_over() {
    let scene = Scene::with("\u{feff}[tasks.a]\r\nrun = \"true\"\r\n");
    scene.call(&["run", "--dry-run"]).good();
    let said =
        Scene::with("\u{feff}x = 1\r\n[tasks.a]\r\nrun = \"true\"\r\n").call(&["run", "--dry-run"]);
    assert!(said.wrong().starts_with("tidegate.toml:1:1: unknown key \"x\""));
}

#[test]
fn file_of_one_byte_is_no_store_to_look_at_or_to_run_with() {
    let scene = Scene::with(GOOD).file("note", "1");
    for command in [&["list", "--store", "note"][..], &["run", "--store", "note"]] {
        let answer = scene.call(command);
        assert_eq!(answer.code, Some(4), "{}", answer.err);
        let told = "FOLDER/note is not a database; name a new file, or a store of tidegate\n";
        assert_eq!(answer.err, format!("tidegate: the store cannot be used: {told}"));
        assert_eq!(scene.read("note"), "1");
    }
}

#[test]
fn file_where_the_folder_of_a_store_should_be_is_told_and_not_passed_over() {
    let scene = Scene::with(GOOD);
    let place = scene.path().join(".tidegate");
    let told = "FOLDER/.tidegate: it is not a folder; remove it, or name another store with \
                --store or TIDEGATE_STORE\n";
    for command in ["list", "run"] {
        std::fs::write(&place, "").unwrap();
        assert!(scene.call(&[command]).err.ends_with(told), "{command}");
        std::fs::remove_file(&place).unwrap();
        std::os::unix::fs::symlink("nowhere", &place).unwrap();
        assert!(scene.call(&[command]).err.ends_with(told), "{command}");
        std::fs::remove_file(&place).unwrap();
    }
}

#[test]
fn folder_of_a_store_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::with(GOOD);
    let folder = scene.path().join(".tidegate");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    for command in ["list", "run"] {
        let answer = scene.call(&[command]);
        let told = "other users may write to it (its mode is 0777); take that right away with chmod \
                    go-w\n";
        assert!(answer.err.ends_with(told), "{command}: {}", answer.err);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{command}");
    }
}
