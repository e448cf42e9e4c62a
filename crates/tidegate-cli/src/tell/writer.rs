//! The thread that writes: lines to stderr, what commands have written to stdout, byte for byte.

use super::{Out, Shared};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::PoisonError;

/// Writes until there is no more. The first that goes wrong on stdout ends the writing there; whoever
/// reads no further has what they wanted.
pub(super) fn write_all(shared: &Shared) -> io::Result<()> {
    let mut written = Ok(());
    while let Some(outs) = next(shared) {
        for out in outs {
            match out {
                // Whoever closed stderr does not want to know.
                Out::Line(line) => drop(writeln!(io::stderr(), "{line}")),
                Out::Log(path) if written.is_ok() => written = show(&path),
                Out::Log(_) => {}
            }
        }
    }
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// What is to be written, once there is something; nothing is locked while it is written.
fn next(shared: &Shared) -> Option<Vec<Out>> {
    let mut state = shared.lock();
    while state.outs.is_empty() && !state.over {
        state = shared.news.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    if state.outs.is_empty() {
        return None;
    }
    let left_out = std::mem::take(&mut state.left_out);
    if left_out > 0 {
        let what = format!("{left_out} lines were left out: they were read too slowly");
        state.outs.push_back(Out::Line(what));
    }
    state.lines = 0;
    Some(state.outs.drain(..).collect())
}

fn show(path: &Path) -> io::Result<()> {
    // A command that was never begun has none.
    let Ok(mut log) = std::fs::File::open(path) else { return Ok(()) };
    let mut out = io::stdout().lock();
    io::copy(&mut log, &mut out)?;
    out.flush()
}
