//! How well a data directory is, of made ones: each file that says something of it is there or not.

use std::fs;
use std::path::{Path, PathBuf};

use leadline_datadir::{Condition, DataDir, Lsn, Server};

const IN_PRODUCTION: u32 = 6;
const SHUT_DOWN: u32 = 1;
const SHUT_DOWN_IN_RECOVERY: u32 = 2;
// Offsets in the file.
const MIN_RECOVERY_POINT: usize = 136;
const XLOG_BLCKSZ: usize = 224;

/// A folder that is removed at the end.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Made {
    /// A data directory of 16 in a state.
    fn new(name: &str, state: u32) -> Made {
        let root = std::env::temp_dir().join(format!("leadline-condition-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("global")).unwrap();
        let made = Made(root);
        made.file("PG_VERSION", b"16\n");
        made.file("global/pg_control", &control(state, 202_307_071));
        made
    }

    fn file(&self, name: &str, content: &[u8]) {
        fs::write(self.0.join(name), content).unwrap();
    }

    fn look(&self) -> Condition {
        Condition::of(&self.0)
    }
}

fn control(state: u32, catalog: u32) -> Vec<u8> {
    let mut file = vec![0; 512];
    let words =
        [(0, 77), (8, 1300), (12, catalog), (16, state), (40, 0x28), (44, 1), (64, 800), (216, 8192), (220, 131_072)];
    for (at, word) in words {
        file[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
    }
    let crc = leadline_page::postgres::describe_control(&file).2;
    file[288..292].copy_from_slice(&crc.to_le_bytes());
    file
}

fn names(condition: &Condition) -> Vec<(&'static str, bool)> {
    condition.remarks().iter().map(|r| (r.name, r.is_error)).collect()
}

#[test]
fn of_a_server_that_was_shut_down_there_is_nothing_to_say() {
    let condition = Made::new("stopped", SHUT_DOWN).look();
    assert_eq!((condition.server, condition.behind_since(), names(&condition)), (Server::Stopped, None, vec![]));
}

#[test]
fn a_standby_that_replayed_nothing_after_its_checkpoint_is_whole() {
    let made = Made::new("standby", SHUT_DOWN_IN_RECOVERY);
    // Where the checkpoint's record is, how far it replayed, and whether that is more than the record. The second record ends on the
    // next page, the third in the next segment, whose first page has a longer header. Then pages of other sizes than the usual one.
    let cases = [
        (8192, 0x100_0028, 0x100_00a0, false),
        (8192, 0x100_0028, 0x100_00b8, true),
        (8192, 0x100_1fd0, 0x100_2060, false),
        (8192, 0x100_1fd0, 0x100_2078, true),
        (8192, 0x1ff_ffd0, 0x200_0070, false),
        (8192, 0x1ff_ffd0, 0x200_0088, true),
        (16384, 0x100_1fd0, 0x100_2060, true),
        (4096, 0x100_0fd0, 0x100_1060, false),
    ];
    for (page, checkpoint, replayed, is_behind) in cases {
        let mut file = control(SHUT_DOWN_IN_RECOVERY, 202_307_071);
        file[XLOG_BLCKSZ..XLOG_BLCKSZ + 4].copy_from_slice(&u32::to_le_bytes(page));
        file[32..40].copy_from_slice(&u64::to_le_bytes(checkpoint));
        file[MIN_RECOVERY_POINT..MIN_RECOVERY_POINT + 8].copy_from_slice(&u64::to_le_bytes(replayed));
        let crc = leadline_page::postgres::describe_control(&file).2;
        file[288..292].copy_from_slice(&crc.to_le_bytes());
        made.file("global/pg_control", &file);
        let condition = made.look();
        assert_eq!(condition.server, Server::StoppedInRecovery);
        assert_eq!(condition.behind_since(), is_behind.then_some(Lsn(checkpoint)), "{checkpoint:x} {replayed:x}");
        assert_eq!(condition.remarks().len(), usize::from(is_behind));
    }
}

#[test]
fn a_crash_leaves_the_servers_own_postmaster_pid() {
    let made = Made::new("crashed", IN_PRODUCTION);
    // No process has such a number.
    made.file("postmaster.pid", format!("99999999\n{}\n", made.0.display()).as_bytes());
    let condition = made.look();
    assert_eq!((condition.server, condition.behind_since()), (Server::Crashed, Some(Lsn(0x1_0000_0028))));
    assert_eq!(names(&condition), [("crashed", false)]);
    assert!(condition.remarks()[0].message.contains(" after 1/28 "), "{:?}", condition.remarks());
    // In a container its folder has another name.
    made.file("postmaster.pid", b"99999999\n/no/such/folder\n");
    assert_eq!(made.look().server, Server::Crashed);
}

#[test]
fn a_copy_is_of_a_crashed_server_when_that_one_does_not_run() {
    let made = Made::new("copied", IN_PRODUCTION);
    assert_eq!(names(&made.look()), [("crashed", false)], "not certain");
    let other = Made::new("copied-from", IN_PRODUCTION);
    made.file("postmaster.pid", format!("99999999\n{}\n", other.0.display()).as_bytes());
    assert_eq!(names(&made.look()), [("crashed", false)]);
    let mut of_another = control(IN_PRODUCTION, 202_307_071);
    of_another[0] = 78;
    other.file("global/pg_control", &of_another);
    assert_eq!(made.look().server, Server::Crashed);
}

#[test]
fn a_backup_label_says_that_a_backup_was_not_restored() {
    let made = Made::new("restoring", IN_PRODUCTION);
    made.file("backup_label", b"START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\n");
    made.file("standby.signal", b"");
    let condition = made.look();
    assert_eq!((condition.server, condition.has_standby_signal), (Server::Restoring, true));
    assert_eq!(names(&condition), [("restoring", false)]);
}

#[test]
fn any_changed_byte_of_the_control_file_is_an_error() {
    let made = Made::new("crc", SHUT_DOWN);
    let sound = control(SHUT_DOWN, 202_307_071);
    for at in 0..292 {
        let mut file = sound.clone();
        file[at] ^= 4;
        made.file("global/pg_control", &file);
        let condition = made.look();
        let of_control = |(name, is_error): &(&str, bool)| name.starts_with("control") && *is_error;
        assert!(names(&condition).iter().any(of_control), "byte {at}: {:?}", condition.remarks());
        assert!(condition.differing_majors().is_none(), "byte {at}");
    }
    made.file("global/pg_control", &sound[..200]);
    assert_eq!(names(&made.look()), [("control", true)]);
    fs::remove_file(made.0.join("global/pg_control")).unwrap();
    assert_eq!((made.look().server, names(&made.look())), (Server::Unknown, vec![("control", true)]));
}

#[test]
fn the_major_of_the_control_file_is_that_of_its_catalog() {
    let made = Made::new("version", SHUT_DOWN);
    made.file("PG_VERSION", b"15\n");
    assert_eq!(made.look().differing_majors(), Some(("15".into(), 16)));
    assert_eq!(names(&made.look()), [("version", true)]);
    // A build whose catalog version is not known is one of the majors with such control files.
    made.file("global/pg_control", &control(SHUT_DOWN, 1));
    assert_eq!(made.look().differing_majors(), None);
    made.file("PG_VERSION", b"17\n");
    assert_eq!(made.look().differing_majors(), Some(("17".into(), 13)));
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_opened() {
    let made = Made::new("pipe", SHUT_DOWN);
    let path = made.0.join("global/pg_control");
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(names(&made.look()), [("control", true)]);
    assert!(DataDir::open(&made.0).is_err());
}

#[test]
fn a_file_finds_its_data_directory() {
    let made = Made::new("around", SHUT_DOWN);
    let file = made.0.join("base/5/1259");
    assert_eq!(Condition::around(&file).map(|c| c.server), Some(Server::Stopped));
    let next_xid = |dir: DataDir| (dir.major, dir.transactions.map(|t| t.next_xid));
    assert_eq!(DataDir::around(&file).map(next_xid), Ok((16, Some(800))));
    assert!(Condition::around(Path::new("/no/such/base/5/1259")).is_none());
}
