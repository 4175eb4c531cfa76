//! The first byte of what a client sends after its login (`COM_...`).

/// The client ends the connection.
pub const QUIT: u8 = 0x01;
/// A statement as text.
pub const QUERY: u8 = 0x03;
/// Nothing but an answer is asked for.
pub const PING: u8 = 0x0e;
/// The client proves again who it is.
pub const CHANGE_USER: u8 = 0x11;
/// The binary log from a position on.
pub const BINLOG_DUMP: u8 = 0x12;
/// A statement is prepared.
pub const STMT_PREPARE: u8 = 0x16;
/// It is executed.
pub const STMT_EXECUTE: u8 = 0x17;
/// A part of a long parameter.
pub const STMT_SEND_LONG_DATA: u8 = 0x18;
/// A prepared statement is forgotten.
pub const STMT_CLOSE: u8 = 0x19;
/// Its parameters and cursor are.
pub const STMT_RESET: u8 = 0x1a;
/// The next rows of a cursor.
pub const STMT_FETCH: u8 = 0x1c;
/// The binary log from a set of transactions on.
pub const BINLOG_DUMP_GTID: u8 = 0x1e;
/// A prepared statement is executed with many rows of parameters; of MariaDB.
pub const STMT_BULK_EXECUTE: u8 = 0xfa;
