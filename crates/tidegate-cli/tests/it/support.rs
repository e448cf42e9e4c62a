//! A folder to stand in, the binary, and texts as they should be.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder with files in it.
pub(crate) struct Scene {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Scene { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// One with this command file.
    pub(crate) fn with(text: &str) -> Self {
        Scene::new().file("tidegate.toml", text)
    }

    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The binary, in a folder of the scene.
    pub(crate) fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        for name in [
            "TIDEGATE_PARALLEL_LIMIT",
            "TIDEGATE_TASK_TIMEOUT",
            "TIDEGATE_STORE",
            "COLUMNS",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        // Where there is no store the user's own is looked at, which is none of these tests' business.
        command.env_remove("XDG_STATE_HOME").env("HOME", self.path().join("home"));
        command.envs(self.variables.iter().cloned());
        command.current_dir(self.path().join(folder)).args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Answer {
        self.call_in("", arguments)
    }

    pub(crate) fn call_in(&self, folder: &str, arguments: &[&str]) -> Answer {
        let output = self.command(folder, arguments).output().unwrap();
        let text = |bytes| self.neutral(&String::from_utf8(bytes).unwrap());
        let code = output.status.code();
        Answer { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// The text with the scene's folder called FOLDER.
    pub(crate) fn neutral(&self, text: &str) -> String {
        let real = self.path().canonicalize().unwrap();
        let text = text.replace(real.to_str().unwrap(), "FOLDER");
        text.replace(self.path().to_str().unwrap(), "FOLDER")
    }

    /// Everything in the folder.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path.clone());
                }
                found.push(path);
            }
        }
        found.sort();
        found
    }
}

impl Answer {
    /// What it printed, if all was well.
    pub(crate) fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.good()).unwrap()
    }

    /// What it complained of, if the command line or the file is wrong.
    pub(crate) fn wrong(self) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(2), ""), "{}", self.err);
        self.err
    }
}

/// Compares with a text in the folder `tests`. With `TIDEGATE_GOLDEN=write` the text is written.
pub(crate) fn golden(path: impl AsRef<Path>, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path);
    if std::env::var_os("TIDEGATE_GOLDEN").is_some_and(|word| word == "write") {
        fs::write(&path, found).unwrap();
    }
    let right = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == right,
        "{} should be:\n{right}\nand is:\n{found}\n(TIDEGATE_GOLDEN=write makes it so)",
        path.display()
    );
}
