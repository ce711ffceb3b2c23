//! Options of Debezium's format, with the names and values of its documentation.

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decimals {
    #[default]
    Precise,
    Double,
    String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimePrecision {
    #[default]
    AdaptiveTimeMicroseconds,
    Connect,
    Isostring,
    Microseconds,
    Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BigintUnsigned {
    #[default]
    Long,
    Precise,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binaries {
    #[default]
    Bytes,
    Base64,
    Base64UrlSafe,
    Hex,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub topic_prefix: String,
    pub schemas: bool,
    pub tombstones_on_delete: bool,
    pub provide_transaction_metadata: bool,
    pub include_query: bool,
    /// Messages of statements. The caller writes them, who knows the definitions.
    pub include_schema_changes: bool,
    pub decimal_handling_mode: Decimals,
    pub time_precision_mode: TimePrecision,
    pub bigint_unsigned_handling_mode: BigintUnsigned,
    pub binary_handling_mode: Binaries,
    /// Stands for a value that the log does not have.
    pub unavailable_value_placeholder: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            topic_prefix: "penstock".to_owned(),
            schemas: false,
            tombstones_on_delete: true,
            provide_transaction_metadata: false,
            include_query: false,
            include_schema_changes: false,
            decimal_handling_mode: Decimals::Precise,
            time_precision_mode: TimePrecision::AdaptiveTimeMicroseconds,
            bigint_unsigned_handling_mode: BigintUnsigned::Long,
            binary_handling_mode: Binaries::Bytes,
            unavailable_value_placeholder: "__debezium_unavailable_value".to_owned(),
        }
    }
}
