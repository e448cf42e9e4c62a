//! `graphile_worker`, with the settings of its own benchmark: a program in a workspace of its own.
//!
//! The program inserts its jobs, prints `ready`, waits for a line, runs the jobs, and prints a
//! [`Cost`] when none is left in its table.

use super::MeasuredServer;
use super::meter::Reading;
use super::schema::ScratchSchema;
use crate::cost::Cost;
use crate::processes::this_program;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const NAME: &str = "graphile_worker 0.14";

/// The directory that the rival is built in, beside the build of this program.
fn target_directory() -> PathBuf {
    let program = this_program();
    let target = program.parent().and_then(Path::parent).expect("it lies in a target directory");
    target.join("rivals")
}

/// Builds the rival, optimised, if that was not done before.
pub(super) fn build_rival() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/rivals/graphile/Cargo.toml");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path", manifest]);
    cargo.arg("--target-dir").arg(target_directory());
    eprintln!("building {NAME} …");
    let status = cargo.status().expect("cargo can be run");
    assert!(status.success(), "{NAME} cannot be built: {status}");
}

/// Inserts jobs, then measures until all of them have ended.
pub(super) fn run_rival(server: &MeasuredServer, jobs: usize) -> Reading {
    let schema = ScratchSchema::new(&server.server);
    let mut command = Command::new(target_directory().join("release/tidegate-rival-graphile"));
    command.arg(server.server.url()).arg(schema.name()).arg(jobs.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the rival was built");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut read_line = || {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it answers");
        line
    };
    assert_eq!(read_line().trim_end(), "ready", "the rival has inserted its jobs");
    let before = server.meter.read_seconds();
    stdin.write_all(b"\n").expect("it is read");
    let line = read_line();
    let server_seconds = server.meter.read_seconds() - before;
    let cost: Cost = serde_json::from_str(&line).expect("it answers with a cost");
    let status = child.wait().expect("the rival ends");
    assert!(status.success(), "the rival failed: {status}");
    Reading::new(cost, server_seconds)
}
