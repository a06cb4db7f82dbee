# Creates and drops hashes, lists and strings, sorts them, and matches them by regular expressions.

use strict;
use warnings;

# Its own generator, because Perl's differs between versions.
my $state = 20;

sub chance {
    $state = ($state * 1103515245 + 12345) % 2147483648;
    return int(($state >> 8) % $_[0]);
}

sub word { return join '', map { chr(97 + chance(12)) } 0 .. 1 + chance(16) }

my $count = $ARGV[0];

for my $turn (1 .. 3) {
    my @words = map { word() } 1 .. $count;

    my %places;
    push @{ $places{ $words[$_] } }, $_ for 0 .. $#words;
    my @often = sort { @{ $places{$b} } <=> @{ $places{$a} } || $a cmp $b } keys %places;
    print "often @often[0 .. 9]\n";
    delete $places{$_} for @often[0 .. $#often / 2];
    print 'left ', scalar(keys %places), "\n";

    my $text = join ' ', @words;
    my ($vowels, $length) = (0, 0);
    while ($text =~ /\b(\w*?)([aei]+)(\w*)\b/g) {
        $vowels += length $2;
        $length += length("$1$3");
    }
    print "vowels $vowels in $length\n";
    (my $marked = $text) =~ s/([b-d]{2,})/'<' . uc($1) . '>'/ge;
    print 'marked ', length $marked, ' ', substr($marked, -40), "\n";

    my @records = map { { key => $_, turned => scalar reverse($_), parts => [split /e/] } } @words;
    my @sorted = sort { $a->{turned} cmp $b->{turned} || $a->{key} cmp $b->{key} } @records;
    my $sum = 0;
    $sum = ($sum * 31 + length($_->{key}) * @{ $_->{parts} }) % 1000003 for @sorted;
    print "records $sum $sorted[0]{key} $sorted[-1]{key}\n";
}
