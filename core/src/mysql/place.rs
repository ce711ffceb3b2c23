//! Places in the binary log.

use crate::json_text::quoted;
use crate::place::SourcePlace;

/// A position in one of the log's files, whose names end with their numbers.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Place {
    pub file: String,
    pub position: u64,
}

impl Place {
    fn number(&self) -> u64 {
        self.file.rsplit('.').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

impl SourcePlace for Place {
    fn is_before(&self, other: &Self) -> bool {
        (self.number(), self.position) < (other.number(), other.position)
    }

    fn fields(&self) -> String {
        format!("\"file\":{},\"position\":{}", quoted(&self.file), self.position)
    }
}

impl Clone for Place {
    fn clone(&self) -> Self {
        Self { file: self.file.clone(), position: self.position }
    }

    /// Files change rarely.
    fn clone_from(&mut self, other: &Self) {
        self.position = other.position;
        if self.file != other.file {
            self.file.clone_from(&other.file);
        }
    }
}

impl From<(String, u64)> for Place {
    fn from((file, position): (String, u64)) -> Self {
        Self { file, position }
    }
}

impl From<Place> for (String, u64) {
    fn from(place: Place) -> Self {
        (place.file, place.position)
    }
}
