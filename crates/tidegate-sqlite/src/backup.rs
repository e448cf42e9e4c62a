//! A copy of the database while others write.
//!
//! SQLite writes the copy in one go from one snapshot, row by row, so that it is also as small as it
//! can be. It appears under its name when it is whole and on the disk, and not before.
//!
//! Deliberately absent: SQLite's interface for copies page by page, which begins anew whenever another
//! process writes; logs of commands, which are files of their own.

use crate::error::Error;
use crate::open::{self, Place};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Makes a copy at a place where nothing is.
pub(crate) fn backup(place: &Place, to: &Path) -> Result<(), Error> {
    place.check()?;
    let refuse = |why| Error::Backup { to: to.to_owned(), why };
    let target = target(place, to).map_err(refuse)?;
    let part = Part::create(&target).map_err(refuse)?;
    let name = part
        .path
        .to_str()
        .ok_or_else(|| refuse(io::Error::other("its name is not UTF-8; name another file")))?;
    let connection = place.open_reader()?;
    connection.execute("VACUUM INTO ?1", [name])?;
    drop(connection);
    part.finish(&target).map_err(refuse)
}

/// The whole path of a file that does not exist, in a folder that does.
fn target(place: &Place, to: &Path) -> io::Result<PathBuf> {
    let exists = || io::Error::other("there is something already; name a new file");
    let folder = match open::folder_of(to).canonicalize() {
        Ok(folder) if folder.is_dir() => folder,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        _ => return Err(io::Error::other("its folder does not exist; create it first")),
    };
    let target = folder.join(to.file_name().ok_or_else(exists)?);
    match target.canonicalize() {
        Ok(found) if found == place.path => {
            Err(io::Error::other("that is the store itself; name another file"))
        }
        _ if target.symlink_metadata().is_ok() => Err(exists()),
        _ => Ok(target),
    }
}

/// A copy that is being made, under a name of its own beside the one it will have. Dropping it takes
/// it away.
struct Part {
    path: PathBuf,
}

impl Part {
    /// An empty file, which only its owner can read.
    fn create(target: &Path) -> io::Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        for number in 0.. {
            let part = format!(".{name}.{}-{number}.part", std::process::id());
            let path = target.with_file_name(part);
            match open::create_private(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|_| Part { path }),
            }
        }
        unreachable!("there are more numbers than files")
    }

    /// Gives it its name once it is on the disk.
    fn finish(self, target: &Path) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        if target.symlink_metadata().is_ok() {
            return Err(io::Error::other("there is something already; name a new file"));
        }
        fs::rename(&self.path, target)?;
        // The name as well, where folders can be told to be written.
        let folder = target.parent().map(File::open);
        let _ = folder.map(|folder| folder.and_then(|folder| folder.sync_all()));
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is not there any more if it got its name. SQLite leaves a journal only if it was killed.
        let _ = fs::remove_file(&self.path);
    }
}
