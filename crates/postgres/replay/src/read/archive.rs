//! Where archived WAL comes from, and which of its files belong to the timeline that is followed.
//!
//! What the archive does not have is looked for in `pg_wal`, as the server does. Files are asked for one after the other, and the WAL
//! ends with the first one that is in neither.
//!
//! Source: `RestoreArchivedFile` in `access/transam/xlogarchive.c`, `XLogFileReadAnyTLI` in `access/transam/xlogrecovery.c`.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leadline_errors::{Error, Kind, Result};
use leadline_wal::archive::find;
use leadline_wal::timeline::{history_name, segment_name};
use leadline_wal::wal::segments_in;
use leadline_wal::{is_compressed, small_text, Lineage, Lsn, Wal};

/// Exit codes above are no answer of a restore command but a failure of the shell, or a signal.
const LAST_ANSWER: i32 = 125;

/// Where archived WAL is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder with files as the server names them, or as pgBackRest or barman keep them, compressed or not.
    Folder(PathBuf),
    /// A command as the server's `restore_command`, and a folder for what it brings.
    Command {
        /// With `%f`, `%p` and `%r`.
        command: String,
        /// It is to be empty, and of the caller to remove.
        folder: PathBuf,
    },
}

/// Which timeline is followed: `recovery_target_timeline`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Follow {
    /// The newest that the archive knows.
    #[default]
    Latest,
    /// That of the backup.
    Current,
    /// This one.
    Timeline(u32),
}

/// An archive and the `pg_wal` beside it.
pub(crate) struct Archive<'a> {
    source: &'a Source,
    root: &'a Path,
    segment_size: u64,
    /// The segment that is needed longest, `%r` of a restore command.
    oldest: String,
}

/// WAL along the timelines of a lineage.
pub(crate) struct Followed {
    pub log: Wal,
    /// Where it must be left, when its last segment goes on beyond the switch to a timeline that has no segment.
    pub limit: Option<Lsn>,
    /// The segment that is missing behind it.
    pub missing: String,
    /// The archive has more, but not what comes next.
    pub gap: Option<Error>,
}

impl<'a> Archive<'a> {
    /// `redo`: where replay begins, on which timeline.
    pub(crate) fn new(source: &'a Source, root: &'a Path, segment_size: u64, redo: (Lsn, u32)) -> Result<Archive<'a>> {
        if let Source::Folder(path) = source {
            let about = fs::metadata(path).map_err(|e| Error::reading(path, "the archive", &e))?;
            if !about.is_dir() {
                return Err(Error::new(Kind::Usage, "the archive is not a folder").at(path));
            }
        }
        let oldest = segment_name(redo.1, redo.0 .0 / segment_size, segment_size);
        Ok(Archive { source, root, segment_size, oldest })
    }

    /// The timeline to follow, with those it came from. `own`: that of the data directory.
    pub(crate) fn lineage(&self, follow: Follow, own: u32) -> Result<Lineage> {
        match follow {
            Follow::Current => self.lineage_of(own),
            Follow::Timeline(1) => Ok(Lineage::alone(1)),
            Follow::Timeline(timeline) => match self.history(timeline)? {
                Some(lineage) => Ok(lineage),
                None => Err(Error::new(Kind::NotFound, format!("the archive does not know timeline {timeline}"))
                    .detail(format!("{} is missing", history_name(timeline)))
                    .at(self.place())),
            },
            Follow::Latest => {
                let mut newest = None;
                let mut timeline = own;
                while let Some(found) = self.history(timeline + 1)? {
                    newest = Some(found);
                    timeline += 1;
                }
                newest.map_or_else(|| self.lineage_of(own), Ok)
            }
        }
    }

    fn lineage_of(&self, timeline: u32) -> Result<Lineage> {
        let found = if timeline > 1 { self.history(timeline)? } else { None };
        Ok(found.unwrap_or_else(|| Lineage::alone(timeline)))
    }

    fn history(&self, timeline: u32) -> Result<Option<Lineage>> {
        let name = history_name(timeline);
        let Some(path) = self.file(&name, None)? else { return Ok(None) };
        let text = small_text(&path)?;
        let wrong = |wrong| {
            Error::new(Kind::Invalid, "the history file of a timeline is damaged")
                .detail(wrong)
                .at(self.place_of(&name))
        };
        Lineage::parse(timeline, &text).map(Some).map_err(wrong)
    }

    /// The history files that the archive has of timelines from one to before another one, with their names.
    pub(crate) fn histories(&self, from: u32, to: u32) -> Result<Vec<(String, Vec<u8>)>> {
        let mut found = Vec::new();
        for name in (from.max(2)..to).map(history_name) {
            if let Some(path) = self.archived(&name, None)? {
                found.push((name, small_text(&path)?.into_bytes()));
            }
        }
        Ok(found)
    }

    /// The WAL from the segment that has `from` on, up to the segment that has `to`, or as far as there are files.
    pub(crate) fn follow(&self, lineage: &Lineage, from: Lsn, to: Option<Lsn>) -> Result<Followed> {
        let size = self.segment_size;
        let first = from.0 / size;
        // One more ends the record that begins in the last one wanted.
        let last = to.map_or(u64::MAX, |to| to.0 / size + 1);
        let (mut files, mut limit) = (Vec::new(), None);
        let mut number = first;
        while number <= last && limit.is_none() {
            let mut found = None;
            for (timeline, until) in lineage.of_segment(number, size) {
                if let Some(path) = self.file(&segment_name(timeline, number, size), Some(size))? {
                    found = Some((path, until));
                    break;
                }
            }
            let Some((path, until)) = found else { break };
            files.push(path);
            limit = until;
            number += 1;
        }
        // The segment that the WAL would go on in.
        let missing_number = if limit.is_some() { number - 1 } else { number };
        let missing = segment_name(self.wanted(lineage, missing_number), missing_number, size);
        if files.is_empty() {
            return Err(Error::new(Kind::NotFound, "the WAL does not begin where replay must begin")
                .detail(format!("{missing} is missing, which has {from}"))
                .at(self.place()));
        }
        let gap = if number <= last { self.gap(lineage, missing_number, last, &missing)? } else { None };
        let log = Wal::of_segments(Path::new(&self.place()), &files)?;
        Ok(Followed { log, limit, missing, gap })
    }

    /// The newest timeline that a segment can be of.
    fn wanted(&self, lineage: &Lineage, number: u64) -> u32 {
        lineage.of_segment(number, self.segment_size).first().map_or(0, |newest| newest.0)
    }

    /// The WAL seems to end, but the archive has more of it.
    fn gap(&self, lineage: &Lineage, missing_number: u64, last: u64, missing: &str) -> Result<Option<Error>> {
        let Source::Folder(folder) = self.source else { return Ok(None) };
        for (timeline, number, path) in segments_in(folder, self.segment_size)? {
            if number > missing_number && number <= last && self.wanted(lineage, number) == timeline {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let gap = Error::new(Kind::NotFound, "the archived WAL has a gap")
                    .detail(format!("{missing} is missing, but {name} is there"))
                    .hint("copy what is missing to the archive; the server would end its recovery at the gap");
                return Ok(Some(gap.at(folder)));
            }
        }
        Ok(None)
    }

    /// A file of the archive, or of `pg_wal`.
    fn file(&self, name: &str, size: Option<u64>) -> Result<Option<PathBuf>> {
        if let Some(found) = self.archived(name, size)? {
            return Ok(Some(found));
        }
        let path = self.root.join("pg_wal").join(name);
        Ok(path.is_file().then_some(path))
    }

    fn archived(&self, name: &str, size: Option<u64>) -> Result<Option<PathBuf>> {
        match self.source {
            Source::Folder(folder) => {
                let Some(found) = find(folder, name)? else { return Ok(None) };
                // Many archives compress a file and leave its name as it was.
                if !is_compressed(&found)? {
                    check_size(&found, size)?;
                }
                Ok(Some(found))
            }
            Source::Command { command, folder } => {
                let path = folder.join(name);
                if !path.is_file() && !self.run(command, name, &path)? {
                    return Ok(None);
                }
                check_size(&path, size)?;
                Ok(Some(path))
            }
        }
    }

    /// Has the command bring a file; false when it does not have it.
    fn run(&self, command: &str, name: &str, path: &Path) -> Result<bool> {
        let text = replaced(command, name, path, &self.oldest);
        let shell = Command::new("/bin/sh")
            .args(["-c", &text])
            .current_dir(self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output();
        let done =
            shell.map_err(|e| Error::new(Kind::Storage, "cannot run the restore command").detail(e.to_string()))?;
        if done.status.signal().is_some() || done.status.code().is_some_and(|code| code > LAST_ANSWER) {
            let said = String::from_utf8_lossy(&done.stderr);
            let said = said.trim();
            let said = if said.is_empty() { String::new() } else { format!(": {said}") };
            return Err(Error::new(Kind::Invalid, "the restore command failed")
                .detail(format!("{}{said}", done.status))
                .at(text));
        }
        Ok(done.status.success() && path.is_file())
    }

    fn place(&self) -> String {
        match self.source {
            Source::Folder(folder) => folder.display().to_string(),
            Source::Command { command, .. } => command.clone(),
        }
    }

    fn place_of(&self, name: &str) -> String {
        match self.source {
            Source::Folder(folder) => folder.join(name).display().to_string(),
            Source::Command { .. } => name.to_owned(),
        }
    }
}

/// A segment that is not whole is refused, as the server does.
fn check_size(path: &Path, wanted: Option<u64>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let has = fs::metadata(path).map_err(|e| Error::reading(path, "the WAL", &e))?.len();
    if has != wanted {
        return Err(Error::new(Kind::Invalid, "an archived segment has a wrong size")
            .detail(format!("it has {has} bytes, expected {wanted}"))
            .hint(if is_compressed(path)? { "it is compressed: the command must decompress it" } else { "" })
            .at(path));
    }
    Ok(())
}

/// A restore command with its places filled in.
fn replaced(command: &str, name: &str, path: &Path, oldest: &str) -> String {
    let mut text = String::new();
    let mut rest = command.chars();
    while let Some(letter) = rest.next() {
        match (letter, rest.clone().next()) {
            ('%', Some(place @ ('f' | 'p' | 'r' | '%'))) => {
                rest.next();
                match place {
                    'f' => text.push_str(name),
                    'p' => text.push_str(&path.display().to_string()),
                    'r' => text.push_str(oldest),
                    _ => text.push('%'),
                }
            }
            _ => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_restore_command_are_filled_in() {
        let text = replaced("get %f to '%p' 100%% since %r %x %", "A", Path::new("/b"), "C");
        assert_eq!(text, "get A to '/b' 100% since C %x %");
    }
}
