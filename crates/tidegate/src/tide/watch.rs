//! Notifications of the file system: a file is looked at when something has happened to it, and not
//! only when its interval is over.
//!
//! - [`Watch`]: a file as one probe looks at it. Each look renews it, so that it follows folders that
//!   are made, moved or removed, and Drop takes it away.
//! - [`Watcher`]: the watched folders of one pool. One thread reads what happens in them, for as long
//!   as there are any, so that it works on every runtime. A folder is watched once for everybody.
//!
//! Looking at intervals is the net beneath. What cannot be watched (no watches are left, the folder
//! may not be read) or is not told (what other machines do, the far end of a link) is found by it.
//!
//! Locks: probes before a watch's. The watcher's is held alone, and never while a path is looked up,
//! which takes for ever on a network drive that is gone.

use super::Tide;
use crate::sync::{Mutex, lock};
use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tidegate_core::chain::Key;
use tokio::time::Instant;

/// The least time from one look at a file to the next early one: a file that is written all the time
/// is not looked at all the time.
pub(super) const GAP: Duration = Duration::from_millis(50);

/// A file is waited for at one of the first two. Its being written is told by the third, and not at
/// every single write; who writes without end is found by looking when the quiet time is over.
const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Bytes of notifications read at once. The longest takes 272.
const BUFFER: usize = 4096;

/// A file that is looked at.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Watched>);

struct Watched {
    path: PathBuf,
    watcher: OnceLock<Arc<Watcher>>,
    looks: Mutex<Looks>,
}

#[derive(Default)]
struct Looks {
    /// Who looks, while it lives.
    probe: Option<(Weak<Tide>, Key)>,
    place: Option<Place>,
    /// When the last look began, and whether anything happened since.
    began: Option<Instant>,
    notified: bool,
    /// When the last look wants to be followed by another.
    again: Option<Instant>,
    /// That it cannot be watched is said once.
    said: bool,
}

/// A watched folder and the name in it that leads to the file.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    folder: i32,
    name: OsString,
}

impl Watch {
    pub(crate) fn new(path: &Path) -> Self {
        let (path, watcher, looks) = (path.to_owned(), OnceLock::new(), Mutex::default());
        Watch(Arc::new(Watched { path, watcher, looks }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Sees to it that whatever happens to the file from here on is told. Says whether it was not
    /// before: then something may have happened since the last look. Blocks as a look does.
    pub(crate) fn renew(&self) -> bool {
        let Some(watcher) = self.0.watcher.get() else { return false };
        let mut anew = false;
        // Until it stays as it is: meanwhile a missing folder may have come, or one may have gone.
        loop {
            match watcher.place(&self.0) {
                Ok(true) => anew = true,
                Ok(false) => return anew,
                Err(error) => {
                    self.cannot(&error);
                    return anew;
                }
            }
        }
    }

    fn cannot(&self, error: &io::Error) {
        if !std::mem::replace(&mut lock(&self.0.looks).said, true) {
            let path = self.path().display();
            tracing::debug!(%path, %error, "cannot be watched and is looked at at intervals only");
        }
    }

    /// For a look that knows when the answer may change by itself.
    pub(crate) fn look_again(&self, at: Option<Instant>) {
        lock(&self.0.looks).again = at;
    }

    /// This probe looks from here on. Called once.
    pub(super) fn bind(&self, tide: &Arc<Tide>, probe: Key) {
        self.0.watcher.get_or_init(|| tide.watcher.clone());
        lock(&self.0.looks).probe = Some((Arc::downgrade(tide), probe));
    }

    /// The probe is gone.
    pub(super) fn unbind(&self) {
        lock(&self.0.looks).probe = None;
    }

    /// A look begins, and sees what was told so far.
    pub(super) fn begin(&self, now: Instant) {
        let mut looks = lock(&self.0.looks);
        (looks.began, looks.notified, looks.again) = (Some(now), false, None);
    }

    /// When to look next: when it is due, or earlier if there is a reason to.
    pub(super) fn next_look(&self, due: Instant) -> Instant {
        let looks = lock(&self.0.looks);
        let soonest = looks.began.map_or(due, |began| began + GAP);
        let again = looks.again.map(|again| again.max(soonest));
        let early = if looks.notified { Some(soonest) } else { again };
        early.map_or(due, |early| early.min(due))
    }

    /// Something has happened: the probe looks soon, and once for all that happens until then.
    fn notify(&self) {
        let mut looks = lock(&self.0.looks);
        let known = std::mem::replace(&mut looks.notified, true);
        let tide = looks.probe.as_ref().and_then(|(tide, _)| tide.upgrade());
        drop(looks);
        let Some(tide) = tide.filter(|_| !known) else { return };
        let mut probes = lock(&tide.probes);
        // It may have gone since. While the probes are locked it stays.
        let probe = lock(&self.0.looks).probe.as_ref().map(|&(_, probe)| probe);
        let rouse = probe.map(|probe| probes.notified(&mut lock(&tide.wheel), probe));
        drop(probes);
        if let Some(rouse) = rouse {
            tide.rouse(rouse);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let place = lock(&self.looks).place.take();
        if let (Some(watcher), Some(place)) = (self.watcher.get(), place) {
            watcher.release(&place, self);
        }
    }
}

/// The watched folders of one pool.
#[derive(Default)]
pub(super) struct Watcher {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    inotify: Option<Arc<OwnedFd>>,
    /// Whether a thread reads it. It ends with the last folder.
    reading: bool,
    /// Who waits for which name in which folder.
    folders: HashMap<i32, HashMap<OsString, Vec<Weak<Watched>>>>,
    /// How many are just asking for a folder. They may be given one that nobody else needs any more,
    /// so such ones are removed when nobody asks.
    asking: usize,
    unused: Vec<i32>,
}

impl Watcher {
    /// Puts the watch where notifications come from. Says whether it was elsewhere.
    fn place(self: &Arc<Self>, watched: &Arc<Watched>) -> io::Result<bool> {
        let (place, anew) = loop {
            let inotify = lock(&self.state).ask()?;
            let place = nearest(&inotify, &watched.path);
            let mut state = lock(&self.state);
            state.asking -= 1;
            // The last folder may have gone meanwhile, and all this with it.
            if state.inotify.as_ref().is_some_and(|known| Arc::ptr_eq(known, &inotify)) {
                let anew = place.as_ref().is_ok_and(|place| state.enter(place, watched));
                state.remove_unused();
                break (place?, anew);
            }
        };
        self.read_on()?;
        if anew {
            let before = lock(&watched.looks).place.replace(place);
            before.iter().for_each(|before| self.release(before, watched));
        }
        Ok(anew)
    }

    fn release(&self, place: &Place, watched: &Watched) {
        let mut state = lock(&self.state);
        if let Some(names) = state.folders.get_mut(&place.folder)
            && let Some(users) = names.get_mut(&place.name)
        {
            users.retain(|user| !std::ptr::eq(user.as_ptr(), watched));
            if users.is_empty() {
                names.remove(&place.name);
            }
            if names.is_empty() {
                state.unused.push(place.folder);
                state.remove_unused();
            }
        }
    }

    /// Sees to it that there is a thread that reads.
    fn read_on(self: &Arc<Self>) -> io::Result<()> {
        let mut state = lock(&self.state);
        if let Some(inotify) = state.inotify.clone()
            && !state.reading
        {
            let watcher = self.clone();
            let thread = std::thread::Builder::new().name("tidegate-watch".to_owned());
            thread.spawn(move || watcher.read(&inotify))?;
            state.reading = true;
        }
        Ok(())
    }

    /// Tells everybody what happens, until there is nothing left to watch.
    fn read(&self, inotify: &OwnedFd) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut meant = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => lock(&self.state).meant_by(&event, &mut meant),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::debug!(%error, "cannot read what happens to files");
                    lock(&self.state).folders.clear();
                }
            }
            if reader.is_buffer_empty() {
                // Without the lock: the last to know of a watch drops it.
                meant.drain(..).for_each(|watch: Watch| watch.notify());
                let mut state = lock(&self.state);
                if state.folders.is_empty() {
                    (state.inotify, state.reading) = (None, false);
                    return;
                }
            }
        }
    }
}

impl State {
    /// Somebody asks for a folder, and says when it has been answered.
    fn ask(&mut self) -> io::Result<Arc<OwnedFd>> {
        let inotify = match &self.inotify {
            Some(inotify) => inotify.clone(),
            None => Arc::new(inotify::init(CreateFlags::CLOEXEC)?),
        };
        self.inotify = Some(inotify.clone());
        self.asking += 1;
        Ok(inotify)
    }

    /// Says whether it was not there.
    fn enter(&mut self, place: &Place, watched: &Arc<Watched>) -> bool {
        let names = self.folders.entry(place.folder).or_default();
        let users = names.entry(place.name.clone()).or_default();
        let anew = !users.iter().any(|user| std::ptr::eq(user.as_ptr(), &**watched));
        if anew {
            users.push(Arc::downgrade(watched));
        }
        anew
    }

    fn remove_unused(&mut self) {
        let Some(inotify) = self.inotify.as_ref().filter(|_| self.asking == 0) else { return };
        for folder in self.unused.drain(..) {
            if self.folders.get(&folder).is_some_and(HashMap::is_empty) {
                self.folders.remove(&folder);
                // It may be gone by itself. If not, this wakes the thread that reads.
                let _ = inotify::remove_watch(inotify, folder);
            }
        }
    }

    /// Gathers whose file is meant: who waits for the name; if it is the folder itself, all in it;
    /// if some events were lost, all.
    fn meant_by(&mut self, event: &Event<'_>, into: &mut Vec<Watch>) {
        let add = |user: &Weak<Watched>| into.extend(user.upgrade().map(Watch));
        if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.folders.values().flat_map(HashMap::values).flatten().for_each(add);
        }
        let Some(names) = self.folders.get(&event.wd()) else { return };
        match event.file_name().map(|name| OsStr::from_bytes(name.to_bytes())) {
            Some(name) => names.get(name).into_iter().flatten().for_each(add),
            None => names.values().flatten().for_each(add),
        }
        if event.events().contains(ReadFlags::IGNORED) {
            self.folders.remove(&event.wd());
        }
    }
}

/// Watches the nearest folder above the path that is there.
fn nearest(inotify: &OwnedFd, path: &Path) -> io::Result<Place> {
    for below in path.ancestors() {
        let (Some(folder), Some(name)) = (below.parent(), below.file_name()) else { continue };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match inotify::add_watch(inotify, folder, MASK) {
            Ok(folder) => return Ok(Place { folder, name: name.to_owned() }),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::NOENT.into())
}
