//! How the columns of a table are laid down in Parquet. Every choice here was measured with
//! `cargo run --release -p leadline-capture --example write_speed`.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::schema::types::ColumnPath;

use crate::spec::{ColumnType, TableSpec};

/// The properties all segments of a table are written with.
pub(crate) fn writer_properties(spec: &TableSpec) -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("leadline ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_encoding(Encoding::PLAIN)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_data_page_size_limit(1 << 20)
        .set_data_page_row_count_limit(1 << 20)
        .set_write_batch_size(8192)
        .set_max_row_group_row_count(Some(1 << 22));
    for column in spec.columns {
        if column.column_type == ColumnType::String {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column.name), true);
        }
    }
    Arc::new(properties.build())
}
