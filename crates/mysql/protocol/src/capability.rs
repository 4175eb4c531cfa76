//! What each end says it can do (`CLIENT_...`).

/// The login names a database.
pub const CONNECT_WITH_DB: u32 = 1 << 3;
/// Packets are compressed with zlib.
pub const COMPRESS: u32 = 1 << 5;
/// The protocol since 4.1.
pub const PROTOCOL_41: u32 = 1 << 9;
/// TLS.
pub const SSL: u32 = 1 << 11;
/// Passwords are proven as since 4.1 (`CLIENT_RESERVED2`).
pub const SECURE_CONNECTION: u32 = 1 << 15;
/// The login names a method.
pub const PLUGIN_AUTH: u32 = 1 << 19;
/// The length of the proof is one of one to nine bytes.
pub const PLUGIN_AUTH_LENENC_CLIENT_DATA: u32 = 1 << 21;
/// Packets are compressed with zstd.
pub const ZSTD_COMPRESSION_ALGORITHM: u32 = 1 << 26;
