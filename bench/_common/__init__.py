"""What the OSU-style programs share: command line, contenders, timing, report, plot."""
