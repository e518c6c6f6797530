#include "cli/commands.h"

int main(int argc, char** argv) { return milwright::cli::Main(argc, argv); }
