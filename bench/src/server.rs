//! A PostgreSQL server of its own, by `tools/postgres`.

use crate::bare;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server. One that was started here stops, and its directory is removed, when this is dropped.
pub(crate) struct Server {
    url: String,
    /// The directory of a server that was started here.
    directory: Option<PathBuf>,
}

impl Server {
    /// Starts a server, with the settings that PostgreSQL comes with and its files on a disk.
    pub(crate) fn start() -> Self {
        let directory = bare::disk_directory().join(format!(
            "tidegate-pg-{}-{:06x}",
            std::process::id(),
            fastrand::u32(..1 << 24)
        ));
        eprintln!("starting a PostgreSQL server in {} …", directory.display());
        let url = control("start", &directory);
        Server { url: url.trim_end().to_owned(), directory: Some(directory) }
    }

    /// The server that `TIDEGATE_TEST_POSTGRES` names, or else a new one.
    #[cfg(feature = "postgres")]
    pub(crate) fn find_or_start() -> Self {
        match std::env::var("TIDEGATE_TEST_POSTGRES") {
            Ok(url) if !url.is_empty() => Server { url, directory: None },
            _ => Server::start(),
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL of a store in a schema of this server, with more parameters of the store.
    pub(crate) fn store_url(&self, schema: &str, parameters: &str) -> String {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{separator}schema={schema}{parameters}", self.url)
    }

    /// Crashes the server and starts it again; returns when it has recovered.
    pub(crate) fn restart(&self) {
        let directory = self.directory.as_deref();
        control("restart", directory.expect("only a server that was started here is crashed"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            control("stop", directory);
        }
    }
}

/// Runs `tools/postgres`; returns its output.
fn control(action: &str, directory: &Path) -> String {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/postgres");
    let mut command = Command::new(&program);
    command.arg(action).arg(directory).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(output.status.success(), "tools/postgres {action} failed: {}", output.status);
    String::from_utf8(output.stdout).expect("it prints text")
}
