//! Where runs are kept.
//!
//! Each run that is begun here has a queue of its own, so that two terminals share limits and never
//! each other's commands.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
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
    let mut above = here.ancestors().map(|folder| folder.join(FOLDER));
    let folder = match above.find(|folder| folder.symlink_metadata().is_ok()) {
        Some(folder) => {
            refuse_folder(&folder)?;
            folder
        }
        None => of_user()?,
    };
    at(folder.join(NAME), "", true)
}

/// What has the name of a store's folder and is none is nothing to pass over: another store would be
/// looked at than is meant. Nor is a folder that others may write to: the store may be theirs.
fn refuse_folder(folder: &Path) -> Result<(), StoreError> {
    let refused = |error| StoreError { path: folder.to_owned(), error };
    if !folder.is_dir() {
        let right = format!("remove it, or name another store with --store or {VARIABLE}");
        return Err(refused(io::Error::other(format!("it is not a folder; {right}"))));
    }
    tidegate::process::check_folder(folder).map_err(refused)
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
        crate::waves::plain(&path.unwrap_or_else(|| hide_password(&self.address)))
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
        if folder.symlink_metadata().is_err() {
            DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(failed)?;
        }
        refuse_folder(folder)?;
        let ignore =
            OpenOptions::new().write(true).create_new(true).open(folder.join(".gitignore"));
        match ignore.and_then(|mut ignore| ignore.write_all(b"*\n")) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

/// A URL without the password that may stand in it.
fn hide_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let Some((user, host)) = authority.rsplit_once('@') else { return address.to_owned() };
    let user = user.split_once(':').map_or(user, |(user, _)| user);
    // Parameters may have one too.
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    format!("{scheme}://{user}@{host}{path}")
}

/// The name of a queue that no run has been in.
pub(crate) fn new_queue() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("run-{}-{}", std::process::id(), now.as_nanos())
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

    #[test]
    fn password_of_a_url_is_not_shown() {
        for (address, shown) in [
            ("postgres://ada:secret@db/jobs?pool=4", "postgres://ada@db/jobs"),
            ("postgres://ada@db/jobs", "postgres://ada@db/jobs"),
            ("postgres://ada:se@cret@db", "postgres://ada@db"),
            ("postgres://db/jobs", "postgres://db/jobs"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(hide_password(address), shown);
        }
    }
}
