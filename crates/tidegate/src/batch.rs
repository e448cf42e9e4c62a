#[derive(Debug)]
/// x
pub enum BatchError {}
