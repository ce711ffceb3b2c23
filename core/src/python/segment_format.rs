//! What the segments of relay logs hold. A second format makes this a choice by its name.

use crate::mysql_binlog::MySqlBinlog;

pub type Format = MySqlBinlog;
