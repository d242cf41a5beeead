# frozen_string_literal: true

require 'json'
require 'puppet'
require File.expand_path('../../puppet_x/muster/plain_data', File.dirname(__FILE__))
require File.expand_path('../../puppet_x/muster/run_file', File.dirname(__FILE__))

Puppet::Reports.register_report(:muster) do
  desc 'Writes the report as JSON to the file in MUSTER_REPORT_FILE, in one step, for muster-agent to read.'

  def process
    report = PuppetX::Muster::PlainData.from(to_data_hash)
    PuppetX::Muster::RunFile.replace('MUSTER_REPORT_FILE', JSON.generate(report))
  end
end
