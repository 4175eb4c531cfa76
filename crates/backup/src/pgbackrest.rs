//! Backups in a repository of pgBackRest: full, differential and incremental ones, whose files may be in bundles, compressed and encrypted.
//!
//! Source: src/info/manifest/ and src/command/restore/file.c of pgBackRest. `backup/STANZA/LABEL/backup.manifest` lists all files of the
//! cluster as they are restored, each with the backup that has its bytes and where these are: in a file of its own, or from an offset of a
//! bundle on. So a backup is read whole, however many others it is made of.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind};
use leadline_unpack::Packing;
use serde_json::Value;

use crate::cipher::{Decrypted, Passphrase};
use crate::exactly::Exactly;
use crate::place::{parts_of, plain, At};
use crate::{ini, Backup, Failed, Member, Unread, Visit};

const MANIFEST: &str = "backup.manifest";
const INFO: &str = "backup.info";
/// The format that is known.
const FORMAT: u64 = 5;
/// A list is not believed to be longer.
const LONGEST_LIST: u64 = 4 << 30;
const SMALL: u64 = 1 << 16;

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    object: PathBuf,
    offset: u64,
    bytes: u64,
    sha1: Option<String>,
    is_bundled: bool,
}

/// One backup.
pub(crate) struct Repository {
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
}

/// What a manifest says of the backup as a whole.
#[derive(Default)]
struct Said {
    format: u64,
    label: String,
    compress_type: String,
    references: Vec<String>,
    is_raw: bool,
    pass: Option<String>,
    stop_lsn: Option<String>,
    files: Vec<(String, Value)>,
    default: Value,
}

impl Repository {
    /// The backup in a folder; none when it is none of pgBackRest.
    pub(crate) fn open(folder: &Path, key: Option<&Passphrase>) -> Result<Option<Repository>, Error> {
        if !folder.is_dir() {
            return Ok(None);
        }
        let (manifest, copy) = (folder.join(MANIFEST), folder.join(format!("{MANIFEST}.copy")));
        if !manifest.exists() {
            refuse_folder(folder, &copy)?;
            return Ok(None);
        }
        let stanza = folder.parent().unwrap_or(folder);
        let key = manifests_key(stanza, &manifest, key)?;
        let text = list(&manifest, key.as_ref())?;
        let said = Said::of(&text).map_err(|line| not_a_list(&manifest, format!("line {line} is no key and value")))?;
        if said.format != FORMAT {
            return Err(Error::new(Kind::Unsupported, "this format of pgBackRest is not known")
                .detail(format!("it has format {}, supported is {FORMAT}", said.format))
                .at(manifest));
        }
        Repository::of(stanza, &said).map(Some).map_err(|detail| not_a_list(&manifest, detail))
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
            members: Vec::new(),
            stored: Vec::new(),
            unread: Vec::new(),
            parts: Vec::new(),
            packing,
            pass: said.pass.clone().map(Passphrase::new),
            is_raw: said.is_raw,
            stop_lsn: said.stop_lsn.clone(),
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
        if about.get("bi").is_some() && bytes > 0 {
            self.unread.push(Unread { name, why: "it is stored as a block incremental file".into() });
            return Ok(());
        }
        let bundle = number("bni");
        let object = match bundle {
            Some(bundle) => folder.join("bundle").join(bundle.to_string()),
            None => {
                let mut path = folder.join(inside).into_os_string();
                path.push(suffix);
                path.into()
            }
        };
        let stored = Stored {
            object,
            offset: number("bno").unwrap_or(0),
            bytes: number("repo-size").unwrap_or(bytes),
            sha1: get("checksum").and_then(Value::as_str).map(str::to_owned),
            is_bundled: bundle.is_some(),
        };
        self.members.push(Member { name, bytes });
        self.stored.push((bytes > 0).then_some(stored));
        Ok(())
    }

    /// The bytes of a file as they are in the cluster.
    fn bytes_of<'f>(&self, stored: &Stored, file: &'f File, bytes: u64) -> io::Result<Box<dyn Read + 'f>> {
        let raw = self.is_raw && stored.is_bundled;
        let object = Exactly::next(At { file, at: stored.offset }, stored.bytes);
        let mut input: Box<dyn Read + Send + 'f> = Box::new(object);
        if let Some(pass) = &self.pass {
            input = Box::new(Decrypted::new(input, pass.clone(), raw));
        }
        let packing = if raw && self.packing == Packing::Gzip { Packing::Zlib } else { self.packing };
        if packing != Packing::Plain {
            input = packing.stream(BufReader::with_capacity(1 << 16, input))?;
        }
        Ok(Box::new(Exactly::all(input, bytes, stored.sha1.as_deref())))
    }

    fn open_stored(&self, stored: &Stored) -> io::Result<File> {
        let file = File::open(&stored.object);
        file.map_err(|e| io::Error::new(e.kind(), format!("cannot open {}: {e}", stored.object.display())))
    }

    fn visit_one(&self, number: usize, visit: &mut Visit) -> Result<bool, Error> {
        let bytes = self.members.get(number).map_or(0, |member| member.bytes);
        let Some(stored) = self.stored.get(number).and_then(Option::as_ref) else {
            return visit(number, &mut io::empty());
        };
        let file = match self.open_stored(stored) {
            Ok(file) => file,
            Err(e) => return visit(number, &mut Failed(Some(e))),
        };
        let mut input = self.bytes_of(stored, &file, bytes).unwrap_or_else(|e| Box::new(Failed(Some(e))));
        visit(number, &mut input)
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

    fn read(&self, part: usize, visit: &mut Visit) -> Result<(), Error> {
        for number in self.parts.get(part).cloned().unwrap_or_default() {
            if !self.visit_one(number, visit)? {
                break;
            }
        }
        Ok(())
    }

    fn small(&self, name: &Path) -> Option<Vec<u8>> {
        let number = self.members.iter().position(|member| member.name == name && member.bytes <= SMALL)?;
        let stored = self.stored.get(number)?.as_ref()?;
        let file = self.open_stored(stored).ok()?;
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

/// A repository or stanza has backups; which one is meant, the user says.
fn refuse_folder(folder: &Path, copy: &Path) -> Result<(), Error> {
    if copy.exists() {
        return Err(Error::new(Kind::Invalid, "this backup is not complete")
            .detail(format!("it has {MANIFEST}.copy and no {MANIFEST}: pgBackRest is making it, or was interrupted"))
            .hint("wait until pgbackrest backup has ended, or take another backup")
            .at(folder));
    }
    let is_repository = folder.join("backup").is_dir() && folder.join("archive").is_dir();
    if folder.join(INFO).exists() || is_repository {
        return Err(Error::new(Kind::Usage, "this is a pgBackRest repository, not one of its backups")
            .hint("name a backup: REPO/backup/STANZA/LABEL")
            .at(folder));
    }
    Ok(())
}

/// The key of the manifests of a stanza; none where nothing is encrypted.
fn manifests_key(stanza: &Path, manifest: &Path, key: Option<&Passphrase>) -> Result<Option<Passphrase>, Error> {
    if !is_encrypted(manifest)? {
        return Ok(None);
    }
    let Some(key) = key else {
        return Err(Error::new(Kind::Rights, "this backup is encrypted, and no key is given")
            .hint("set PGBACKREST_REPO1_CIPHER_PASS, or give --key-file FILE")
            .at(manifest));
    };
    let copy = stanza.join(format!("{INFO}.copy"));
    let info = Some(stanza.join(INFO)).filter(|info| info.exists()).unwrap_or(copy);
    let text = list(&info, Some(key))?;
    let mut pass = None;
    let read = ini::each(&text, |section, key, value| {
        if (section, key) == ("cipher", "cipher-pass") {
            pass = value.as_str().map(Passphrase::new);
        }
    });
    read.map_err(|line| not_a_list(&info, format!("line {line} is no key and value")))?;
    Ok(pass)
}

fn is_encrypted(path: &Path) -> Result<bool, Error> {
    let mut head = [0; 8];
    let file = File::open(path).map_err(|e| Error::reading(path, "the manifest", &e))?;
    let have = file.read_at(&mut head, 0).map_err(|e| Error::reading(path, "the manifest", &e))?;
    Ok(head.get(..have) == Some(b"Salted__"))
}

/// The text of a list, decrypted where it has to be.
fn list(path: &Path, key: Option<&Passphrase>) -> Result<String, Error> {
    let failed = |e: &io::Error| Error::reading(path, "the list of a backup", e);
    let file = File::open(path).map_err(|e| failed(&e))?;
    let bytes = fs::metadata(path).map_err(|e| failed(&e))?.len();
    if bytes > LONGEST_LIST {
        return Err(not_a_list(path, format!("it has {bytes} bytes")));
    }
    let mut text = Vec::new();
    let read = match key {
        Some(key) => Decrypted::new(BufReader::new(file), key.clone(), false).read_to_end(&mut text),
        None => BufReader::new(file).read_to_end(&mut text),
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
