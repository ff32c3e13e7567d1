/// When the disk must have an operation before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// Before the operation returns. An event that was accepted survives a power cut.
    #[default]
    Full,
    /// Some time later. A crash of the program loses nothing; a power cut or a crash of the operating
    /// system loses the operations since the last checkpoint. The file stays intact. Many times faster.
    Normal,
}

impl Synchronous {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }
}
