//! Where runs are kept, and which process has which run.
//!
//! Each run that is begun here has a queue of its own, so that two terminals share limits and never
//! each other's commands. Whoever works on a queue holds a lock on a file of its name, which the
//! system takes away when the process ends, however it ends.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder beside the command file, and the store in it.
const FOLDER: &str = ".tidegate";
const NAME: &str = "store.db";

/// What names the store for all commands.
pub(crate) const VARIABLE: &str = "TIDEGATE_STORE";

/// For so long runs are kept.
pub(crate) const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Where the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// As an engine is given it.
    pub(crate) address: String,
    /// The database, if it is a file.
    path: Option<PathBuf>,
    /// Whether nobody has named it: then its folder is made.
    own: bool,
}

/// The store that is named, or else the one beside the command file.
///
/// # Errors
/// A path that cannot be written as an address.
pub(crate) fn place(named: Option<&str>, folder: &Path) -> Result<Place, StoreError> {
    match by_name(named)? {
        Some(place) => Ok(place),
        None => at(folder.join(FOLDER).join(NAME), "", true),
    }
}

/// The store that is named, or else the nearest one from here upwards, or else the user's own.
///
/// # Errors
/// A path that cannot be written as an address, or there is no place for the user's own.
pub(crate) fn nearest(named: Option<&str>) -> Result<Place, StoreError> {
    if let Some(place) = by_name(named)? {
        return Ok(place);
    }
    let here = std::env::current_dir();
    let here = here.map_err(|error| StoreError { path: PathBuf::from("."), error })?;
    let above = here.ancestors().map(|folder| folder.join(FOLDER)).find(|folder| folder.is_dir());
    let folder = match above {
        Some(folder) => folder,
        None => of_user()?,
    };
    at(folder.join(NAME), "", true)
}

/// Where the user's own store is.
fn of_user() -> Result<PathBuf, StoreError> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    state.map(|state| state.join("tidegate")).ok_or_else(|| {
        let what = format!("there is no HOME to keep it in; name one with --store or {VARIABLE}");
        StoreError { path: PathBuf::from(NAME), error: io::Error::other(what) }
    })
}

/// The store that the command line names, or the environment does.
fn by_name(named: Option<&str>) -> Result<Option<Place>, StoreError> {
    let variable = || match std::env::var_os(VARIABLE)?.into_string() {
        Ok(text) => Some(Ok(text)),
        Err(text) => {
            let error = io::Error::other(format!("{VARIABLE} is not UTF-8"));
            Some(Err(StoreError { path: text.into(), error }))
        }
    };
    let named = named.map(|named| Ok(named.to_owned())).or_else(variable).transpose()?;
    let Some(named) = named.filter(|named| !named.is_empty()) else { return Ok(None) };
    let place = match named.split_once(':') {
        Some(("sqlite", rest)) => {
            let (path, options) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
            at(PathBuf::from(path), options, false)
        }
        Some((kind, _)) if kind.len() > 1 && kind.bytes().all(|byte| byte.is_ascii_lowercase()) => {
            Ok(Place { address: named, path: None, own: false })
        }
        _ => at(PathBuf::from(named), "", false),
    };
    place.map(Some)
}

/// A database at this path, or in the folder there. Commands that find it in their environment stand
/// elsewhere.
fn at(path: PathBuf, options: &str, own: bool) -> Result<Place, StoreError> {
    let unusable = |path: &Path, error| StoreError { path: path.to_owned(), error };
    let path = std::path::absolute(&path).map_err(|error| unusable(&path, error))?;
    let path = if path.is_dir() { path.join(NAME) } else { path };
    match path.to_str() {
        Some(text) => {
            Ok(Place { address: format!("sqlite:{text}{options}"), path: Some(path), own })
        }
        None => Err(unusable(&path, io::Error::other("its path is not UTF-8"))),
    }
}

impl Place {
    /// Whether there is something at the place already, as far as can be seen from here.
    pub(crate) fn exists(&self) -> bool {
        self.path.as_deref().is_none_or(Path::exists)
    }

    /// Whether a store may be at the place, which an empty file is not.
    pub(crate) fn may_be_store(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        match self.path.as_deref().map(fs::metadata) {
            Some(Ok(found)) => !found.is_file() || found.len() > 0,
            Some(Err(error)) => !matches!(error.kind(), NotFound | NotADirectory),
            None => true,
        }
    }

    /// The database, if it is a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// As it is spoken of.
    pub(crate) fn name(&self) -> String {
        let path = self.path.as_deref().map(|path| path.to_string_lossy().into_owned());
        crate::waves::plain(&path.unwrap_or_else(|| self.address.clone()))
    }

    /// Whether it is gone with the process.
    pub(crate) fn is_memory(&self) -> bool {
        self.address == "memory:"
    }

    /// Makes the folder of a store that nobody has named, which git passes over.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn prepare(&self) -> Result<(), StoreError> {
        let Some(folder) = self.path.as_deref().and_then(Path::parent).filter(|_| self.own) else {
            return Ok(());
        };
        let failed = |error| StoreError { path: folder.to_owned(), error };
        DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(failed)?;
        let ignore = folder.join(".gitignore");
        match ignore.exists() {
            true => Ok(()),
            false => fs::write(ignore, "*\n").map_err(failed),
        }
    }

    /// Takes a queue that nobody has had before.
    ///
    /// # Errors
    /// The folder of locks cannot be written.
    pub(crate) fn new_queue(&self) -> Result<Queue, StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("run-{}-{}", std::process::id(), now.as_nanos());
        match self.take_queue(&name)? {
            Taken::Yes(queue) => Ok(queue),
            Taken::By(who) => {
                let error = io::Error::other(format!("{who} has queue {name}"));
                Err(StoreError { path: self.path.clone().unwrap_or_default(), error })
            }
        }
    }

    /// Takes a queue that may be somebody's.
    ///
    /// # Errors
    /// The folder of locks cannot be written.
    pub(crate) fn take_queue(&self, name: &str) -> Result<Taken, StoreError> {
        let Some(database) = &self.path else {
            return Ok(Taken::Yes(Queue { name: name.to_owned(), lock: None }));
        };
        let mut folder = database.as_os_str().to_owned();
        folder.push("-runs");
        let path = Path::new(&folder).join(name);
        let taken = take(Path::new(&folder), &path);
        let taken = taken.map_err(|error| StoreError { path: path.clone(), error })?;
        Ok(match taken {
            Ok(file) => Taken::Yes(Queue { name: name.to_owned(), lock: Some((path, file)) }),
            Err(who) => Taken::By(who),
        })
    }
}

/// The lock at this path, or whose it is.
fn take(folder: &Path, path: &Path) -> io::Result<Result<File, String>> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let mut who = String::new();
                file.take(100).read_to_string(&mut who)?;
                return Ok(Err(who.trim().to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        // Whoever had it may have removed it before we locked it: then it is not the file of that
        // name any more.
        let is_same = |there: fs::Metadata| Ok(there.ino() == file.metadata()?.ino());
        if !fs::metadata(path).and_then(is_same).unwrap_or(false) {
            continue;
        }
        file.set_len(0)?;
        writeln!(file, "process {}", std::process::id())?;
        return Ok(Ok(file));
    }
}

/// What came of asking for a queue.
#[derive(Debug)]
pub(crate) enum Taken {
    Yes(Queue),
    /// This process has it.
    By(String),
}

/// The right to work on a queue, until it is dropped.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: String,
    lock: Option<(PathBuf, File)>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some((path, _file)) = &self.lock {
            // A file that stays is in nobody's way.
            let _ = fs::remove_file(path);
        }
    }
}

/// What is beside the store, or is to be, cannot be used.
#[derive(Debug)]
pub(crate) struct StoreError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_one_process_s_until_it_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let place = at(folder.path().join("x.db"), "", false).unwrap();
        let queue = place.new_queue().unwrap();
        let name = queue.name.clone();
        let Taken::By(who) = place.take_queue(&name).unwrap() else { panic!("it is taken") };
        assert_eq!(who, format!("process {}", std::process::id()));
        drop(queue);
        assert!(matches!(place.take_queue(&name).unwrap(), Taken::Yes(_)));
    }

    #[test]
    fn a_store_is_a_path_or_an_address() {
        let folder = Path::new("/f");
        let address = |named| place(Some(named), folder).unwrap().address;
        assert_eq!(address("/a/b.db"), "sqlite:/a/b.db");
        assert_eq!(
            address("sqlite:/a/b.db?synchronous=normal"),
            "sqlite:/a/b.db?synchronous=normal"
        );
        assert_eq!(address("memory:"), "memory:");
        assert_eq!(address("postgres://x"), "postgres://x");
        assert!(address("b.db").starts_with("sqlite:/") && address("b.db").ends_with("/b.db"));
    }
}
