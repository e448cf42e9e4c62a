//! A directory on a real disk: a sync to memory costs nothing, and would make any figure too good.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A new directory on a disk, removed when dropped.
pub(crate) fn scratch() -> TempDir {
    let place = disk_directory();
    tempfile::Builder::new().prefix("tidegate-bare-").tempdir_in(place).expect("room for a file")
}

/// The system's temporary directory, or the one of this program where the former is memory.
pub(crate) fn disk_directory() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let beside = program.parent().map(Path::to_owned);
    let mut places = std::iter::once(std::env::temp_dir()).chain(beside);
    places.find(|place| !in_memory(place)).expect("one of the two is on a disk")
}

/// Whether the innermost mount that holds `place` is a file system in memory. Without a list of
/// mounts to read, it is taken for a disk.
fn in_memory(place: &Path) -> bool {
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let holding = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind) = (PathBuf::from(fields.next()?), fields.next()?);
        place.starts_with(&at).then(|| (at.components().count(), kind))
    });
    // The last of several mounts on one point hides those before it, and `max_by_key` returns it.
    holding
        .max_by_key(|(depth, _)| *depth)
        .is_some_and(|(_, kind)| matches!(kind, "tmpfs" | "ramfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_is_on_a_disk_and_goes_away() {
        let scratch = scratch();
        let path = scratch.path().to_owned();
        assert!(path.is_dir() && !in_memory(&path));
        drop(scratch);
        assert!(!path.exists());
    }
}
