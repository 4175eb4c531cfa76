//! Backups in a repository of pgBackRest: full, differential and incremental ones, whose files may be in bundles, compressed and encrypted.
//!
//! Source: src/info/manifest/ and src/command/restore/file.c of pgBackRest. `backup/STANZA/LABEL/backup.manifest` lists all files of the
//! cluster as they are restored, each with the backup that has its bytes and where these are: in a file of its own, or from an offset of a
//! bundle on, or by blocks in several of both (`blocks.rs`). So a backup is read whole, however many others it is made of.

use std::collections::HashMap;
use std::io::{self, BufReader, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leadline_errors::{Error, Kind};
use leadline_unpack::Packing;
use parking_lot::Mutex;
use serde_json::Value;

use crate::blocks::{read_map, Assembled, Division, SuperBlock};
use crate::cipher::{Decrypted, Passphrase};
use crate::exactly::Exactly;
use crate::place::{parts_of, plain};
use crate::store::{self, At, Opened};
use crate::{ini, Backup, Failed, Member, Unread, Visit, Wants};

const MANIFEST: &str = "backup.manifest";
const INFO: &str = "backup.info";
const BLOCKS_SUFFIX: &str = ".pgbi";
/// The format that is known.
const FORMAT: u64 = 5;
/// A list is not believed to be longer.
const LONGEST_LIST: u64 = 4 << 30;
const SMALL: u64 = 1 << 16;
/// Bytes that the manifest counts the size of a block in, and those of its checksum where it does not say how many.
const BLOCK_UNIT: u64 = 8192;
const CHECKSUM: u64 = 6;
/// A map has some bytes for each block of a gigabyte.
const LARGEST_MAP: u64 = 64 << 20;

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    object: PathBuf,
    offset: u64,
    bytes: u64,
    sha1: Option<String>,
    is_bundled: bool,
    /// Of a file that is stored by blocks, with its name in a backup.
    blocks: Option<(Division, PathBuf)>,
    /// The other backup that has it, by its label.
    holder: Option<String>,
}

/// One backup.
pub(crate) struct Repository {
    stanza: PathBuf,
    /// The backups that have bytes of it.
    references: Vec<String>,
    members: Vec<Member>,
    /// Of each member; none where it has no bytes.
    stored: Vec<Option<Stored>>,
    unread: Vec<Unread>,
    parts: Vec<Range<usize>>,
    packing: Packing,
    pass: Option<Passphrase>,
    /// Bundled files lack what says how they were packed.
    is_raw: bool,
    stop_lsn: Option<String>,
    /// Some files of the repository are stored by blocks.
    has_blocks: bool,
    manifests_key: Option<Passphrase>,
    /// What the manifests of other backups say, by their labels; none of those that cannot be read.
    holders: Mutex<HashMap<String, Option<Arc<Holder>>>>,
}

/// Another backup that has files of this one.
struct Holder {
    backup: Repository,
    numbers: HashMap<PathBuf, usize>,
}

/// What a manifest says of the backup as a whole.
#[derive(Default)]
struct Said {
    format: u64,
    label: String,
    compress_type: String,
    references: Vec<String>,
    is_raw: bool,
    has_blocks: bool,
    pass: Option<String>,
    stop_lsn: Option<String>,
    files: Vec<(String, Value)>,
    default: Value,
}

impl Repository {
    /// The backup in a folder; none when it is none of pgBackRest.
    pub(crate) fn open(folder: &Path, key: Option<&Passphrase>) -> Result<Option<Repository>, Error> {
        if !store::is_folder(folder) {
            return Ok(None);
        }
        let (manifest, copy) = (folder.join(MANIFEST), folder.join(format!("{MANIFEST}.copy")));
        if !store::exists(&manifest) {
            refuse_folder(folder, &copy)?;
            return Ok(None);
        }
        let stanza = folder.parent().unwrap_or(folder);
        let key = manifests_key(stanza, &manifest, key)?;
        Repository::by_manifest(stanza, &manifest, key).map(Some)
    }

    /// `key`: that of the manifests.
    fn by_manifest(stanza: &Path, manifest: &Path, key: Option<Passphrase>) -> Result<Repository, Error> {
        let text = list(manifest, key.as_ref())?;
        let said = Said::of(&text).map_err(|line| not_a_list(manifest, format!("line {line} is no key and value")))?;
        if said.format != FORMAT {
            return Err(Error::new(Kind::Unsupported, "this format of pgBackRest is not known")
                .detail(format!("it has format {}, supported is {FORMAT}", said.format))
                .at(manifest));
        }
        let found = Repository::of(stanza, &said).map_err(|detail| not_a_list(manifest, detail))?;
        Ok(Repository { manifests_key: key, ..found })
    }

    fn of(stanza: &Path, said: &Said) -> Result<Repository, String> {
        let (packing, suffix) = match said.compress_type.as_str() {
            "none" => (Packing::Plain, ""),
            "gz" => (Packing::Gzip, ".gz"),
            "lz4" => (Packing::Lz4, ".lz4"),
            "zst" => (Packing::Zstd, ".zst"),
            "bz2" => (Packing::Bzip2, ".bz2"),
            other => return Err(format!("it is compressed by {other}, which is not known")),
        };
        let mut found = Repository {
            stanza: stanza.to_owned(),
            references: said.references.clone(),
            members: Vec::new(),
            stored: Vec::new(),
            unread: Vec::new(),
            parts: Vec::new(),
            packing,
            pass: said.pass.clone().map(Passphrase::new),
            is_raw: said.is_raw,
            stop_lsn: said.stop_lsn.clone(),
            has_blocks: said.has_blocks,
            manifests_key: None,
            holders: Mutex::default(),
        };
        for (key, about) in &said.files {
            found.add(stanza, said, suffix, key, about)?;
        }
        found.parts = parts_of(&found.members);
        Ok(found)
    }

    /// Adds a file of the list.
    fn add(&mut self, stanza: &Path, said: &Said, suffix: &str, key: &str, about: &Value) -> Result<(), String> {
        let get = |name: &str| about.get(name).or_else(|| said.default.get(name));
        let number = |name: &str| get(name).and_then(Value::as_u64);
        let Some(inside) = plain(key.as_bytes()) else {
            self.unread.push(Unread { name: key.into(), why: "its name leads out of the backup (..)".into() });
            return Ok(());
        };
        let name = inside.strip_prefix("pg_data").map_or(inside.clone(), Path::to_path_buf);
        let bytes = number("size").ok_or_else(|| format!("it does not say how long {key} is"))?;
        let holder = match get("reference") {
            None => said.label.as_str(),
            Some(Value::String(label)) => label,
            Some(at) => {
                let label = at.as_u64().and_then(|at| said.references.get(usize::try_from(at).ok()?));
                label.ok_or_else(|| format!("it does not say which backup has {key}"))?
            }
        };
        let folder = plain(holder.as_bytes()).ok_or_else(|| format!("{holder} is no name of a backup"))?;
        let folder = stanza.join(folder);
        let own = |name: &str| about.get(name).and_then(Value::as_u64);
        let blocks = match (own("bi"), own("bim")) {
            (Some(units), Some(map)) => {
                let block = units.checked_mul(BLOCK_UNIT).filter(|block| *block > 0);
                let block = block.ok_or_else(|| format!("it does not say how large the blocks of {key} are"))?;
                Some((Division { block, checksum: own("bic").unwrap_or(CHECKSUM), map }, inside.clone()))
            }
            _ => None,
        };
        let bundle = number("bni");
        let suffix = if blocks.is_some() { BLOCKS_SUFFIX } else { suffix };
        let object = object_in(&folder, bundle.unwrap_or(0), &inside, suffix);
        let stored = Stored {
            object,
            offset: number("bno").unwrap_or(0),
            bytes: number("repo-size").unwrap_or(bytes),
            sha1: get("checksum").and_then(Value::as_str).map(str::to_owned),
            is_bundled: bundle.is_some(),
            holder: Some(holder).filter(|holder| *holder != said.label).map(str::to_owned),
            blocks,
        };
        self.has_blocks |= stored.blocks.is_some();
        self.members.push(Member { name, bytes });
        self.stored.push((bytes > 0).then_some(stored));
        Ok(())
    }

    /// A file of which the manifest does not say that another backup has it by blocks: up to 2.46 pgBackRest did not carry that over when
    /// a file was too small or too old for it meanwhile. The manifest of the other one says it.
    fn by_blocks_elsewhere(&self, number: usize, stored: &Stored) -> Option<Stored> {
        let label = stored.holder.as_ref().filter(|_| self.has_blocks && stored.blocks.is_none())?;
        let mut holders = self.holders.lock();
        let holder = holders.entry(label.clone()).or_insert_with(|| Holder::open(self, label).map(Arc::new)).clone()?;
        drop(holders);
        let member = self.members.get(number)?;
        let there = *holder.numbers.get(&member.name)?;
        let found = holder.backup.stored.get(there)?.as_ref()?;
        let is_same = found.sha1 == stored.sha1 && holder.backup.members.get(there)?.bytes == member.bytes;
        (found.blocks.is_some() && found.holder.is_none() && is_same).then(|| found.clone())
    }

    /// The bytes of a file as they are in the cluster.
    fn bytes_of<'f>(&'f self, stored: &'f Stored, file: &'f Opened, bytes: u64) -> io::Result<Box<dyn Read + 'f>> {
        let input: Box<dyn Read + 'f> = match &stored.blocks {
            Some((division, inside)) => Box::new(self.by_blocks(stored, *division, inside, file, bytes)?),
            None => {
                let object = Exactly::next(At { file, at: stored.offset }, stored.bytes);
                self.unpacked(object, self.is_raw && stored.is_bundled)?
            }
        };
        Ok(Box::new(Exactly::all(input, bytes, stored.sha1.as_deref())))
    }

    /// What was encrypted and compressed; `raw`: without what says how.
    fn unpacked<'f>(&'f self, object: impl Read + Send + 'f, raw: bool) -> io::Result<Box<dyn Read + 'f>> {
        let input = self.decrypted(object, raw);
        let packing = if raw && self.packing == Packing::Gzip { Packing::Zlib } else { self.packing };
        Ok(match packing {
            Packing::Plain => input,
            packing => packing.stream(BufReader::with_capacity(1 << 16, input))?,
        })
    }

    fn decrypted<'f>(&'f self, object: impl Read + Send + 'f, raw: bool) -> Box<dyn Read + Send + 'f> {
        match &self.pass {
            Some(pass) => Box::new(Decrypted::new(object, pass.clone(), raw)),
            None => Box::new(object),
        }
    }

    /// A file whose map of blocks is at the end of its object.
    fn by_blocks<'f>(
        &'f self,
        stored: &Stored,
        division: Division,
        inside: &'f Path,
        file: &Opened,
        bytes: u64,
    ) -> io::Result<Assembled<'f>> {
        let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
        let is_map = |at: &u64| division.map <= LARGEST_MAP && *at >= stored.offset;
        let at = (stored.offset.saturating_add(stored.bytes)).checked_sub(division.map).filter(is_map);
        let at = at.ok_or_else(|| wrong("the map of its blocks is not in it"))?;
        let mut map = Vec::new();
        self.decrypted(Exactly::next(At { file, at }, division.map), true).read_to_end(&mut map)?;
        let open = move |of: &SuperBlock| {
            let label = usize::try_from(of.reference).ok().and_then(|number| self.references.get(number));
            let folder = label.and_then(|label| plain(label.as_bytes()));
            let folder = folder.ok_or_else(|| wrong("the map of its blocks names a backup that is not listed"))?;
            let path = object_in(&self.stanza.join(folder), of.bundle, inside, BLOCKS_SUFFIX);
            let object = Exactly::next(At { file: opened(&path)?, at: of.offset }, of.stored);
            self.unpacked(object, true)
        };
        Ok(Assembled::new(read_map(&map, division, bytes)?, division.block, Box::new(open)))
    }

    fn visit_one(&self, number: usize, visit: &mut Visit) -> Result<bool, Error> {
        let bytes = self.members.get(number).map_or(0, |member| member.bytes);
        let Some(stored) = self.stored.get(number).and_then(Option::as_ref) else {
            return visit(number, &mut io::empty());
        };
        let elsewhere = self.by_blocks_elsewhere(number, stored);
        let stored = elsewhere.as_ref().unwrap_or(stored);
        let file = match opened(&stored.object) {
            Ok(file) => file,
            Err(e) => return visit(number, &mut Failed(Some(e))),
        };
        let mut input = self.bytes_of(stored, &file, bytes).unwrap_or_else(|e| Box::new(Failed(Some(e))));
        visit(number, &mut input)
    }
}

impl Holder {
    fn open(of: &Repository, label: &str) -> Option<Holder> {
        let folder = of.stanza.join(plain(label.as_bytes())?);
        let backup = Repository::by_manifest(&of.stanza, &folder.join(MANIFEST), of.manifests_key.clone()).ok()?;
        let numbers = backup.members.iter().enumerate().map(|(number, member)| (member.name.clone(), number));
        Some(Holder { numbers: numbers.collect(), backup })
    }
}

impl Backup for Repository {
    fn kind(&self) -> &'static str {
        "pgBackRest backup"
    }

    fn members(&self) -> &[Member] {
        &self.members
    }

    fn unread(&self) -> &[Unread] {
        &self.unread
    }

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn read(&self, part: usize, wanted: &Wants, visit: &mut Visit) -> Result<(), Error> {
        for number in self.parts.get(part).cloned().unwrap_or_default().filter(|number| wanted(*number)) {
            if !self.visit_one(number, visit)? {
                break;
            }
        }
        Ok(())
    }

    fn small(&self, name: &Path) -> Option<Vec<u8>> {
        let number = self.members.iter().position(|member| member.name == name && member.bytes <= SMALL)?;
        let stored = self.stored.get(number)?.as_ref()?;
        let file = opened(&stored.object).ok()?;
        let mut content = Vec::new();
        self.bytes_of(stored, &file, self.members.get(number)?.bytes).ok()?.read_to_end(&mut content).ok()?;
        Some(content)
    }

    fn stop_lsn(&self) -> Option<String> {
        self.stop_lsn.clone()
    }

    fn has_digests(&self) -> bool {
        true
    }
}

impl Said {
    fn of(text: &str) -> Result<Said, usize> {
        let mut said = Said { default: Value::Null, ..Said::default() };
        let mut defaults = serde_json::Map::new();
        ini::each(text, |section, key, value| {
            let text = || value.as_str().unwrap_or_default().to_owned();
            match (section, key) {
                ("target:file", key) => said.files.push((key.to_owned(), value)),
                ("target:file:default", key) => {
                    defaults.insert(key.to_owned(), value);
                }
                ("backrest", "backrest-format") => said.format = value.as_u64().unwrap_or(0),
                ("backup", "backup-label") => said.label = text(),
                ("backup", "backup-reference") => said.references = text().split(',').map(str::to_owned).collect(),
                ("backup", "backup-bundle-raw") => said.is_raw = value.as_bool().unwrap_or(false),
                ("backup", "backup-block-incr") => said.has_blocks = value.as_bool().unwrap_or(false),
                ("backup", "backup-lsn-stop") => said.stop_lsn = Some(text()),
                ("backup:option", "option-compress-type") => said.compress_type = text(),
                ("cipher", "cipher-pass") => said.pass = Some(text()),
                _ => {}
            }
        })?;
        said.default = Value::Object(defaults);
        Ok(said)
    }
}

fn opened(path: &Path) -> io::Result<Opened> {
    store::open(path).map_err(|e| io::Error::new(e.kind(), format!("cannot open {}: {e}", path.display())))
}

/// What in a backup has a file: a bundle, or one of its own; bundles are counted from 1.
fn object_in(folder: &Path, bundle: u64, inside: &Path, suffix: &str) -> PathBuf {
    if bundle > 0 {
        return folder.join("bundle").join(bundle.to_string());
    }
    let mut path = folder.join(inside).into_os_string();
    path.push(suffix);
    path.into()
}

/// A repository or stanza has backups; which one is meant, the user says.
fn refuse_folder(folder: &Path, copy: &Path) -> Result<(), Error> {
    if store::exists(copy) {
        return Err(Error::new(Kind::Invalid, "this backup is not complete")
            .detail(format!("it has {MANIFEST}.copy and no {MANIFEST}: pgBackRest is making it, or was interrupted"))
            .hint("wait until pgbackrest backup has ended, or take another backup")
            .at(folder));
    }
    let is_repository = store::is_folder(&folder.join("backup")) && store::is_folder(&folder.join("archive"));
    if store::exists(&folder.join(INFO)) || is_repository {
        return Err(Error::new(Kind::Usage, "this is a pgBackRest repository, not one of its backups")
            .hint("name a backup: REPO/backup/STANZA/LABEL")
            .at(folder));
    }
    Ok(())
}

/// The key of the manifests of a stanza; none where nothing is encrypted.
fn manifests_key(stanza: &Path, manifest: &Path, key: Option<&Passphrase>) -> Result<Option<Passphrase>, Error> {
    let Some(key) = key_of(manifest, key, "backup", manifest)? else { return Ok(None) };
    let copy = stanza.join(format!("{INFO}.copy"));
    let info = Some(stanza.join(INFO)).filter(|info| store::exists(info)).unwrap_or(copy);
    pass_in(&info, key)
}

/// The user's key, which opens the list of an archive or a backup (`what`); none where the list is not encrypted.
pub(crate) fn key_of<'k>(
    list: &Path,
    key: Option<&'k Passphrase>,
    what: &str,
    at: &Path,
) -> Result<Option<&'k Passphrase>, Error> {
    if !is_encrypted(list)? {
        return Ok(None);
    }
    let lacking = || {
        Error::new(Kind::Rights, format!("this {what} is encrypted, and no key is given"))
            .hint("set PGBACKREST_REPO1_CIPHER_PASS, or give --key-file FILE")
            .at(at)
    };
    key.ok_or_else(lacking).map(Some)
}

/// The key that the list of a stanza has, which the user's key opens.
pub(crate) fn pass_in(info: &Path, key: &Passphrase) -> Result<Option<Passphrase>, Error> {
    let text = list(info, Some(key))?;
    let mut pass = None;
    let read = ini::each(&text, |section, key, value| {
        if (section, key) == ("cipher", "cipher-pass") {
            pass = value.as_str().map(Passphrase::new);
        }
    });
    read.map_err(|line| not_a_list(info, format!("line {line} is no key and value")))?;
    Ok(pass)
}

fn is_encrypted(path: &Path) -> Result<bool, Error> {
    let mut head = [0; 8];
    let file = store::open(path).map_err(|e| Error::reading(path, "the manifest", &e))?;
    let have = file.read_at(&mut head, 0).map_err(|e| Error::reading(path, "the manifest", &e))?;
    Ok(head.get(..have) == Some(b"Salted__"))
}

/// The text of a list, decrypted where it has to be.
fn list(path: &Path, key: Option<&Passphrase>) -> Result<String, Error> {
    let failed = |e: &io::Error| Error::reading(path, "the list of a backup", e);
    let file = store::open(path).map_err(|e| failed(&e))?;
    let bytes = file.bytes().map_err(|e| failed(&e))?;
    if bytes > LONGEST_LIST {
        return Err(not_a_list(path, format!("it has {bytes} bytes")));
    }
    let mut text = Vec::new();
    let read = match key {
        Some(key) => Decrypted::new(BufReader::new(At { file, at: 0 }), key.clone(), false).read_to_end(&mut text),
        None => At { file, at: 0 }.read_to_end(&mut text),
    };
    let wrong_key = || {
        Error::new(Kind::Rights, "the key does not open this repository")
            .hint("give the repo1-cipher-pass of pgBackRest's configuration: PGBACKREST_REPO1_CIPHER_PASS or --key-file FILE")
            .at(path)
    };
    match (read, key) {
        (Err(e), Some(_)) if e.kind() == ErrorKind::InvalidData => Err(wrong_key().detail(e.to_string())),
        (Err(e), _) => Err(failed(&e)),
        // One of 256 wrong keys leaves what looks like padding.
        (Ok(_), Some(_)) if !text.starts_with(b"[backrest]") => Err(wrong_key()),
        (Ok(_), _) => String::from_utf8(text).map_err(|e| not_a_list(path, e.to_string())),
    }
}

fn not_a_list(path: &Path, detail: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, "the list of a backup cannot be read").detail(detail).at(path)
}
