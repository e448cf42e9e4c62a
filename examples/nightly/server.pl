#!/usr/bin/perl
# Serves sales of a region as CSV at /REGION.csv, on a free port of this machine that it writes to a
# file. It is busy the first time each region is asked for.
use strict;
use warnings;
use IO::Socket::INET;

my ($file) = @ARGV or die "usage: server.pl PORT-FILE\n";
my $server = IO::Socket::INET->new(
    Listen => 16, LocalAddr => '127.0.0.1', LocalPort => 0, Proto => 'tcp', ReuseAddr => 1,
) or die "cannot listen: $!\n";
open(my $port, '>', "$file.part") or die "cannot write $file: $!\n";
print $port $server->sockport;
close($port);
rename("$file.part", $file) or die "cannot write $file: $!\n";

alarm 600;    # Nobody has to look for it tomorrow.
my %asked;
while (my $client = $server->accept) {
    my $request = <$client> // '';
    while (my $line = <$client>) { last if $line =~ /^\r?$/ }
    my ($region) = $request =~ m{^GET /(\w+)\.csv };
    if (!defined $region) {
        print $client "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    } elsif (!$asked{$region}++) {
        print $client "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    } else {
        my $body = join('', map { "$_," . $_ * length($region) . "\n" } 1 .. 1000);
        print $client "HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: "
            . length($body) . "\r\nConnection: close\r\n\r\n$body";
    }
    close($client);
}
